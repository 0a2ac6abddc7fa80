"""What Python functions ask outside of Spark: an answer that the script changes between its queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Oracle:
    """An answer in a file, and a query whose tasks read it below a shuffle."""

    def __init__(self, file: Path, spark: SparkSession, orders: Path) -> None:
        self._file = file
        self._spark = spark
        self._orders = orders

    def say(self, answer: str) -> None:
        """Answer so from now on."""
        self._file.write_text(answer)

    def ask(self, by: str = "answer") -> DataFrame:
        """A query that asks; equal to any other one that is grouped by the same name."""
        from pyspark.sql import functions as F

        file = self._file
        asked = F.udf(lambda _: file.read_text(), "string", useArrow=False)
        answers = self._spark.read.parquet(str(self._orders)).select(asked("customer").alias(by))
        return answers.groupBy(by).count()

    def answers(self, by: str = "answer") -> list[str]:
        """What tasks have been answered, now."""
        return [row[0] for row in self.ask(by).collect()]
