"""PySpark's own doctests, plain and under recovery: the same examples pass.

python -m tests.differential.doctests pyspark.sql.group pyspark.sql.window
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.differential.processes import RUNTIME, Folder

MODULES = (
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.functions.builtin",
    "pyspark.sql.group",
    "pyspark.sql.window",
    "pyspark.sql.readwriter",
    "pyspark.sql.column",
    "pyspark.sql.session",
    "pyspark.sql.catalog",
    "pyspark.sql.udf",
    "pyspark.sql.pandas.map_ops",
    "pyspark.sql.pandas.group_ops",
    "pyspark.core.rdd",
    "pyspark.ml.clustering",
    "pyspark.ml.classification",
    "pyspark.ml.feature",
    "pyspark.ml.regression",
    "pyspark.ml.recommendation",
    "pyspark.ml.stat",
    "pyspark.ml.tuning",
    "pyspark.pandas.groupby",
    "pyspark.pandas.window",
    "pyspark.pandas.generic",
)


@dataclass(frozen=True)
class Doctests:
    """How the examples of a module ended, by the name of what they explain."""

    module: str
    plain: dict[str, list[str]]
    recovered: dict[str, list[str]]

    @property
    def examples(self) -> int:
        return sum(len(ends) for ends in self.plain.values())

    @property
    def failing(self) -> int:
        """Examples that fail with plain Spark, for want of a file or a package."""
        return sum(end != "passed" for ends in self.plain.values() for end in ends)

    def differences(self) -> list[str]:
        """Say which examples ended otherwise."""
        found = []
        for name in sorted({*self.plain, *self.recovered}):
            one, other = self.plain.get(name), self.recovered.get(name)
            if one != other:
                changed = [pair for pair in zip(one or [], other or [], strict=False) if pair[0] != pair[1]]
                found.append(f"{name}: {changed or (one, other)}")
        return found


def run_doctests(module: str, folder: Path) -> Doctests:
    """Run a module's doctests by plain Spark and under ``spark-recovery run``."""
    ends = {}
    for name in ("plain", "recovered"):
        runs = Folder(folder / module / name, RUNTIME / "run_doctests.py", folder, timeout=3600)
        results = runs.path / "results.json"
        ended = runs.run(recovered=name == "recovered", arguments=(module, str(results)))
        if not results.exists():
            raise AssertionError(f"{module}, {name}: {ended.log}")
        ends[name] = json.loads(results.read_text())
    return Doctests(module, ends["plain"], ends["recovered"])


def main() -> int:
    """Run the modules that are named, or all; return 1 if an example ends otherwise under recovery."""
    found = 0
    with tempfile.TemporaryDirectory(prefix="doctests-") as name:
        for module in sys.argv[1:] or MODULES:
            done = run_doctests(module, Path(name))
            different = done.differences()
            found += len(different)
            head = f"{module}: {done.examples} examples, {done.failing} fail without us, {len(different)} differ"
            print("\n    ".join([head, *different]), flush=True)  # noqa: T201 - a command's answer
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
