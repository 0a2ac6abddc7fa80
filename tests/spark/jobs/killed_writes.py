"""Writes 400 rows in each of several ways; dies when three of the four tasks of a write have committed, if told so.

Usage: killed_writes.py TARGET DIE KIND… with a file ``DIE/<kind>`` for each write that is to be killed, once.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

target, die = Path(sys.argv[1]), Path(sys.argv[2])
spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"


def committed(place: Path) -> int:
    """How many tasks of the write have committed; 0 while folders of tasks are moved."""
    try:
        tasks = {folder.name for folder in place.rglob("task_*")}
        files = {file.name[:10] for file in place.rglob("part-*") if "_temporary" not in file.parts}
    except FileNotFoundError:
        return 0
    return max(len(tasks), len(files))


def rows(kind: str, place: Path) -> DataFrame:
    """400 rows in four tasks, of which the last waits for the others, and then kills the driver."""
    marker, jvm, driver = die / kind, spark._jvm.java.lang.ProcessHandle.current().pid(), os.getpid()
    if marker.exists():
        marker.write_text(f"{jvm} {driver}")

    @F.udf("long")
    def same(number: int) -> int:
        if number == 300 and marker.exists():
            while committed(place) < 3:
                os.sched_yield()
            pids = marker.read_text().split()
            marker.unlink()
            for pid in pids:
                os.kill(int(pid), signal.SIGKILL)
        return number

    return spark.range(0, 400, 1, 4).select(same("id").alias("id"), (F.col("id") % 2).alias("half"))


def to_path(mode: str, algorithm: int, *, parts: bool = False, random: bool = False) -> Callable[[str], None]:
    def write(kind: str) -> None:
        df = rows(kind, target / kind)
        df = df.withColumn("chance", F.rand()) if random else df
        writer: DataFrameWriter = df.write.mode(mode).option(ALGORITHM, str(algorithm))
        (writer.partitionBy("half") if parts else writer).parquet(str(target / kind))

    return write


def table(kind: str) -> str:
    spark.sql(f"CREATE TABLE IF NOT EXISTS {kind} (id BIGINT, half BIGINT) USING parquet LOCATION '{target / kind}'")
    return kind


def insert_into(kind: str) -> None:
    spark.conf.set(ALGORITHM, "2")
    rows(kind, target / kind).write.insertInto(table(kind))


def sql_insert(kind: str) -> None:
    spark.conf.set(ALGORITHM, "1")
    rows(kind, target / kind).createOrReplaceTempView("rows")
    spark.sql(f"INSERT INTO {table(kind)} SELECT * FROM rows")


def ctas(kind: str) -> None:
    rows(kind, target / "warehouse" / kind).createOrReplaceTempView("rows")
    spark.sql(f"CREATE TABLE {kind} USING parquet AS SELECT * FROM rows")


def ctas_at(kind: str) -> None:
    rows(kind, target / kind).createOrReplaceTempView("rows")
    spark.sql(f"CREATE TABLE {kind} USING parquet LOCATION '{target / kind}' AS SELECT * FROM rows")


def save_as_table(mode: str) -> Callable[[str], None]:
    def write(kind: str) -> None:
        writer = rows(kind, target / "warehouse" / kind).write.mode(mode).option(ALGORITHM, "2")
        writer.saveAsTable(kind)

    return write


def of_an_rdd(kind: str) -> None:
    rows(kind, target / kind).rdd.map(lambda row: str(row.id)).saveAsTextFile(str(target / kind))


WRITES = {
    "append_1": to_path("append", 1),
    "append_2": to_path("append", 2),
    "error_1": to_path("error", 1),
    "error_2": to_path("errorifexists", 2),
    "ignore_2": to_path("ignore", 2),
    "parts_1": to_path("append", 1, parts=True),
    "parts_2": to_path("append", 2, parts=True),
    "random_1": to_path("append", 1, random=True),
    "random_2": to_path("append", 2, random=True),
    "random_error": to_path("error", 1, random=True),
    "rdd": of_an_rdd,
    "overwrite_2": to_path("overwrite", 2),
    "dynamic_1": to_path("overwrite", 1, parts=True),
    "dynamic_2": to_path("overwrite", 2, parts=True),
    "insert_into": insert_into,
    "sql_insert": sql_insert,
    "ctas": ctas,
    "ctas_at": ctas_at,
    "new_table": save_as_table("error"),
    "appended_table": save_as_table("append"),
    "replaced_table": save_as_table("overwrite"),
}
for name in sys.argv[3:]:
    WRITES[name](name)
