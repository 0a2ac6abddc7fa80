"""A table of sales in a few files, and what is made of it and cached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.auto.lines import task_for, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 4
"""Of the table, each read by a task of its own."""
PARTITIONS = 3
"""Of each shuffle."""
SETTINGS = {
    **task_for(600),
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": f"{PARTITIONS}",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}


def write_sales(folder: Path) -> Path:
    """Write the table's files."""
    lines = {
        f"{file}": [f"{row},{row % 7},{row % 3},{row * 37 % 101}.{row % 10}" for row in range(file, 120, FILES)]
        for file in range(FILES)
    }
    return written(folder, lines)


def table(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema("id INT, key INT, kind INT, amount DOUBLE").csv(str(folder))


def by_key(spark: SparkSession, folder: Path) -> DataFrame:
    """What is grouped by one key, cached, and grouped by another one."""
    from pyspark.sql import functions as F

    return table(spark, folder).groupBy("key", "kind").agg(F.count("*").alias("rows"), F.sum("id").alias("ids"))


@contextmanager
def cached(*frames: DataFrame, level: str = "MEMORY_AND_DISK_DESER") -> Iterator[None]:
    """Cache frames while the block runs; by default at the level of ``cache()``."""
    from pyspark import StorageLevel

    try:
        for frame in frames:
            frame.persist(getattr(StorageLevel, level))
        yield
    finally:
        for frame in reversed(frames):
            frame.unpersist(blocking=True)
