"""Runs the doctests of a module of PySpark as the module itself does, and writes down how each example ended.

Usage: run_doctests.py MODULE RESULTS

A module's own ``_test`` makes the session and the names; only the runner is ours.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark
from pyspark.sql import SparkSession


class Recording(doctest.DocTestRunner):
    """Notes each example's end instead of printing it."""

    def __init__(self, ends: dict[str, list[str]], **named: Any) -> None:
        super().__init__(**named)
        self.ends = ends

    def report_start(self, out: Any, test: doctest.DocTest, example: doctest.Example) -> None:
        self.ends.setdefault(test.name, [])

    def report_success(self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        self.ends[test.name].append("passed")

    def report_failure(self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        self.ends[test.name].append(f"failed: {example.source.strip()[:200]}")

    def report_unexpected_exception(
        self, out: Any, test: doctest.DocTest, example: doctest.Example, exc_info: Any
    ) -> None:
        self.ends[test.name].append(f"raised {exc_info[0].__name__}: {example.source.strip()[:200]}")


def examples(module: ModuleType) -> None:
    """Run a module that has no ``_test`` of its own as those of ``pyspark.ml`` are run when they are the script."""
    spark = SparkSession.builder.master("local[2]").appName(module.__name__).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        names = {"spark": spark, "sc": spark.sparkContext, "temp_path": folder}
        doctest.testmod(
            module, globs={**module.__dict__, **names}, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
    spark.stop()


def main() -> None:
    name, results = sys.argv[1:3]
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    ends: dict[str, list[str]] = {}

    def recorded(
        tested: ModuleType | None = None, globs: Any = None, optionflags: int = 0, **_: Any
    ) -> doctest.TestResults:
        runner = Recording(ends, optionflags=optionflags, verbose=False)
        tested = tested or module
        names = dict(tested.__dict__ if globs is None else globs)
        for test in doctest.DocTestFinder().find(tested, tested.__name__, globs=names):
            runner.run(test, out=lambda _: None)
        return doctest.TestResults(0, runner.tries)

    doctest.testmod = recorded  # type: ignore[assignment]
    module = importlib.import_module(name)
    with contextlib.suppress(SystemExit):
        getattr(module, "_test", lambda: examples(module))()
    Path(results).write_text(json.dumps(ends, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
