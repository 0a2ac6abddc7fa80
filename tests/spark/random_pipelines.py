"""Random pipelines of a few recovery points, as plain values that a test can draw, change in one place and build.

Every frame has the columns ``id``, ``k`` and ``v`` (all long) and may have ``r`` (a random number) and ``l`` (a list).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BASE = ("id", "k", "v")
KINDS = (
    *("filter", "arithmetic", "group", "join", "union", "window", "udf", "pandas udf") * 2,
    *("spread", "spread by key", "rand", "collect", "limit"),
)
SOURCES = ("files", "range", "rows", "first")


@dataclass(frozen=True)
class Step:
    """One operation.

    :ivar number: the constant in it
    :ivar side: what it reads besides, if it joins or unites; ``first`` is the first recovery point
    """

    kind: str
    number: int
    side: str


@dataclass(frozen=True)
class Pipeline:
    """A source, and the steps up to each recovery point."""

    source: str
    stages: tuple[tuple[Step, ...], ...]

    def changed(self, kinds: tuple[str, ...], which: int, number: int) -> Pipeline:
        """The same pipeline with another constant in one of its steps of these kinds."""
        at = [(i, j) for i, stage in enumerate(self.stages) for j, step in enumerate(stage) if step.kind in kinds]
        stage, step = at[which % len(at)]
        old = self.stages[stage][step]
        new = replace(old, number=number if number != old.number else number + 1)
        steps = (*self.stages[stage][:step], new, *self.stages[stage][step + 1 :])
        return replace(self, stages=(*self.stages[:stage], steps, *self.stages[stage + 1 :]))


def random_pipeline(random: Random, reads: str = "", begins: str = "") -> Pipeline:
    """Draw a pipeline of two or three recovery points with one or two steps each.

    :param reads: its source; drawn too if empty
    :param begins: the kind of one more step, its first
    """

    def step(kind: str) -> Step:
        return Step(kind, random.randint(1, 9), random.choice(("files", *SOURCES)))

    stages = [[step(random.choice(KINDS)) for _ in range(random.randint(1, 2))] for _ in range(random.randint(2, 3))]
    if begins:
        stages[0].insert(0, step(begins))
    return Pipeline(reads or random.choice(SOURCES[:3]), tuple(map(_limit_last, stages)))


def _limit_last(steps: list[Step]) -> tuple[Step, ...]:
    """Nothing may follow on a limit, which may take any rows, so that a test can tell whether they are right."""
    return tuple(sorted(steps, key=lambda step: step.kind == "limit"))


def build(spark: SparkSession, pipeline: Pipeline, data: Path, checkpoint: Any) -> Iterator[DataFrame]:
    """Yield the frame of each recovery point in turn, as a script would make it.

    :param checkpoint: given a frame and a name, returns what the script goes on from
    """
    df = source(spark, pipeline.source, data)
    first: DataFrame | None = None
    for number, steps in enumerate(pipeline.stages):
        df = checkpoint(apply(df, steps, data, first), f"s{number}")
        first = first or df
        yield df


def fails_by_chance(df: DataFrame, folder: Path) -> DataFrame:
    """Return the rows of *df* through tasks that fail as long as there are files in a folder, each for one of them."""

    def task(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for file in sorted(folder.iterdir()):
            try:
                file.unlink()
            except FileNotFoundError:  # that one is another task's
                continue
            raise RuntimeError("by chance")
        yield from frames

    return df.mapInPandas(task, df.schema)


def source(spark: SparkSession, kind: str, data: Path) -> DataFrame:
    if kind == "files":
        return spark.read.schema("id long, k long, v long").parquet(str(data))
    if kind == "range":
        return spark.range(60).selectExpr("id", "id % 7 AS k", "id * 3 % 11 AS v")
    return spark.createDataFrame([(i, i % 5, i * i % 13) for i in range(40)], "id long, k long, v long")


def apply(df: DataFrame, steps: tuple[Step, ...], data: Path, first: DataFrame | None) -> DataFrame:
    """Return *df* after *steps*."""
    for step in steps:
        df = _apply(df, step, data, first)
    return df


def _apply(df: DataFrame, step: Step, data: Path, first: DataFrame | None) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    n = step.number
    spark = df.sparkSession

    def other() -> DataFrame:
        return first.select(*BASE) if step.side == "first" and first else source(spark, step.side, data)

    match step.kind:
        case "filter":
            return df.where(F.col("v") % 10 != n)
        case "arithmetic":
            return df.withColumn("v", (F.col("v") * n + F.col("k")) % 1000)
        case "group":
            return (
                df.groupBy((F.col("k") % n).alias("k"))
                .agg(F.max("id").alias("id"), F.sum("v").alias("v"))
                .select(*BASE)
            )
        case "join":
            right = other().groupBy((F.col("k") % n).alias("k")).agg(F.count("*").alias("w"))
            return df.join(right, "k", "left").withColumn("v", F.col("v") + F.coalesce("w", F.lit(-1))).drop("w")
        case "union":
            return df.select(*BASE).unionByName(other().where(F.col("id") % n == 0).select(*BASE))
        case "window":
            total = F.sum("v").over(Window.partitionBy("k"))
            rank = F.rank().over(Window.partitionBy("k").orderBy("v"))
            return df.withColumn("v", (total + rank * n) % 1000)
        case "spread":
            return df.repartition(n % 3 + 1)
        case "spread by key":
            return df.repartition(n % 3 + 1, "k")
        case "udf":
            return df.withColumn("v", F.udf(lambda v: (v + n) % 1000, "long")("v"))
        case "pandas udf":

            def scaled(v: pd.Series) -> pd.Series:
                return v * n % 1000

            return df.withColumn("v", F.pandas_udf(scaled, "long")("v"))  # type: ignore[attr-defined]
        case "rand":
            return df.withColumn("r", F.rand(n) if n % 2 else F.rand())
        case "collect":
            grouped = df.groupBy((F.col("k") % n).alias("k"))
            return grouped.agg(F.max("id").alias("id"), F.sum("v").alias("v"), F.collect_list("v").alias("l"))
        case "limit":
            return df.limit(n * 5)
    raise AssertionError(step.kind)


@dataclass(frozen=True)
class Rows:
    """The rows of a frame in no order; lists in them in no order either."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @staticmethod
    def of(df: DataFrame) -> Rows:
        return Rows(tuple(df.columns), _in_no_order(tuple(row) for row in df.collect()))

    def without(self, *columns: str) -> Rows:
        kept = [i for i, column in enumerate(self.columns) if column not in columns]
        return Rows(
            tuple(self.columns[i] for i in kept), _in_no_order(tuple(row[i] for i in kept) for row in self.rows)
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        types = {"r": "double", "l": "array<long>"}
        schema = ", ".join(f"{column} {types.get(column, 'long')}" for column in self.columns)
        return spark.createDataFrame(list(self.rows), schema)


def _in_no_order(rows: Iterable[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    alike = (tuple(sorted(cell) if isinstance(cell, list) else cell for cell in row) for row in rows)
    return tuple(sorted(alike, key=repr))
