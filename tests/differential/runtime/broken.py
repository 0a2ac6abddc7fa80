"""Runs a script with an engine that is broken on purpose, to see that the comparison notices.

Usage: broken.py SCRIPT ARGUMENTS…  A case whose name begins with one of the faults' names meets that fault.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from typing import Any

import oracle
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.readwriter import DataFrameWriter

FAULTS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "drop": lambda rows: rows[1:],
    "duplicate": lambda rows: [*rows, *rows[:1]],
    "reorder": lambda rows: rows[::-1],
    "first": lambda rows: rows[:1] * len(rows),
}
current = [""]


def main() -> None:
    collect, parquet, run_case = DataFrame.collect, DataFrameWriter.parquet, oracle.Recorder.__init__

    def broken_collect(frame: DataFrame) -> list[Any]:
        rows = collect(frame)
        return FAULTS.get(current[0].split("_")[0], list)(rows)

    def broken_parquet(writer: DataFrameWriter, path: str, *arguments: Any, **named: Any) -> None:
        if current[0].startswith("files"):
            writer._df.repartition(5).write.mode("overwrite").parquet(path + "x")
            writer = writer._df.repartition(5).write.mode("overwrite")
        parquet(writer, path, *arguments, **named)
        if current[0].startswith("setting"):
            SparkSession.active().conf.set("spark.sql.debug.maxToStringFields", "77")

    def noted(recorder: oracle.Recorder, case: str, *arguments: Any) -> None:
        current[0] = case
        run_case(recorder, case, *arguments)

    DataFrame.collect = broken_collect
    DataFrameWriter.parquet = broken_parquet
    oracle.Recorder.__init__ = noted
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
