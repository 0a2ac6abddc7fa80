"""Writes 400 rows in each of several ways; dies when three of the four tasks of a write have committed, if told so.

Usage: killed_writes.py TARGET DIE KIND… with a file ``DIE/<kind>`` for each write that is to be killed, once. A kind is
the name of a write and the algorithm of Hadoop's committer: ``append_2``. TARGET is a folder, also on ``s3a://``.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

target, die = sys.argv[1], Path(sys.argv[2])
spark = SparkSession.builder.getOrCreate()
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"


def listing(place: str) -> Callable[[], Iterable[str]]:
    """Return what lists all that is below a folder."""
    if not place.startswith("s3a://"):
        return lambda: (str(path) for path in Path(place).rglob("*"))
    import boto3

    bucket, _, prefix = place.removeprefix("s3a://").partition("/")
    client = boto3.client("s3")
    return lambda: [
        found["Key"] for found in client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", ())
    ]


def committed(paths: Callable[[], Iterable[str]]) -> int:
    """How many tasks of the write have committed; 0 while folders of tasks are moved."""
    tasks, files = set(), set()
    try:
        for path in paths():
            parts = PurePosixPath(path).parts
            tasks.update(part for part in parts if part.startswith("task_"))
            if parts[-1].startswith("part-") and "_temporary" not in parts:
                files.add(parts[-1][:10])
    except FileNotFoundError:
        return 0
    return max(len(tasks), len(files))


def rows(kind: str, place: str) -> DataFrame:
    """400 rows in four tasks, of which the last waits for the others, and then kills the driver."""
    marker, jvm, driver = die / kind, spark._jvm.java.lang.ProcessHandle.current().pid(), os.getpid()
    if marker.exists():
        marker.write_text(f"{jvm} {driver}")

    @F.udf("long")
    def same(number: int) -> int:
        if number == 300 and marker.exists():
            paths = listing(place)
            while committed(paths) < 3:
                os.sched_yield()
            pids = marker.read_text().split()
            marker.unlink()
            for pid in pids:
                os.kill(int(pid), signal.SIGKILL)
        return number

    return spark.range(0, 400, 1, 4).select(same("id").alias("id"), (F.col("id") % 2).alias("half"))


def options(writer: DataFrameWriter, kind: str, *, parts: bool) -> DataFrameWriter:
    writer = writer.option(ALGORITHM, algorithm(kind))
    return writer.partitionBy("half") if parts else writer


def algorithm(kind: str) -> str:
    return kind.rpartition("_")[2]


def to_path(mode: str, *, parts: bool = False, random: bool = False) -> Callable[[str], None]:
    def write(kind: str) -> None:
        df = rows(kind, f"{target}/{kind}")
        df = df.withColumn("chance", F.rand()) if random else df
        options(df.write.mode(mode), kind, parts=parts).parquet(f"{target}/{kind}")

    return write


def table(kind: str, *, parts: bool = False) -> str:
    by = "PARTITIONED BY (half)" if parts else ""
    columns = "(id BIGINT, half BIGINT)"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {kind} {columns} USING parquet {by} LOCATION '{target}/{kind}'")
    if parts:
        Path(target, kind).mkdir(parents=True, exist_ok=True)
        spark.catalog.recoverPartitions(kind)
    return kind


def insert_into(*, overwrite: bool | None = None, parts: bool = False) -> Callable[[str], None]:
    def write(kind: str) -> None:
        rows(kind, f"{target}/{kind}").write.insertInto(table(kind, parts=parts), overwrite)

    return write


def sql_insert(statement: str, *, parts: bool = False, mode: str = "dynamic") -> Callable[[str], None]:
    def write(kind: str) -> None:
        spark.conf.set(OVERWRITE_MODE, mode)
        rows(kind, f"{target}/{kind}").createOrReplaceTempView("rows")
        spark.sql(statement.format(table=table(kind, parts=parts)))

    return write


def ctas(by: str = "", *, placed: bool = False) -> Callable[[str], None]:
    def write(kind: str) -> None:
        place = f"{target}/{kind}" if placed else f"{target}/warehouse/{kind}"
        location = f"LOCATION '{place}'" if placed else ""
        rows(kind, place).createOrReplaceTempView("rows")
        spark.sql(f"CREATE TABLE {kind} USING parquet {by} {location} AS SELECT * FROM rows")

    return write


def hive_ctas(*, converted: bool) -> Callable[[str], None]:
    """Make a table of Hive's, with Spark's own writer or with Hive's."""

    def write(kind: str) -> None:
        spark.conf.set("spark.sql.hive.convertMetastoreCtas", converted)
        rows(kind, f"{target}/warehouse/{kind}").createOrReplaceTempView("rows")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {kind} STORED AS PARQUET AS SELECT * FROM rows")

    return write


def hive_saved(kind: str) -> None:
    writer = rows(kind, f"{target}/warehouse/{kind}").write.format("hive").option("fileFormat", "parquet")
    writer.mode("ignore").saveAsTable(kind)


def save_as_table(mode: str, *, parts: bool = False, there: bool = False) -> Callable[[str], None]:
    """Save to a table that the write makes, or that is there."""

    def write(kind: str) -> None:
        place = f"{target}/{kind}" if there else f"{target}/warehouse/{kind}"
        name = table(kind, parts=parts) if there else kind
        options(rows(kind, place).write.mode(mode), kind, parts=parts).saveAsTable(name)

    return write


def of_an_rdd(kind: str) -> None:
    rows(kind, f"{target}/{kind}").rdd.map(lambda row: str(row.id)).saveAsTextFile(f"{target}/{kind}")


WRITES = {
    "append": to_path("append"),
    "error": to_path("error"),
    "default": to_path("errorifexists"),
    "ignore": to_path("ignore"),
    "parts": to_path("append", parts=True),
    "random": to_path("append", random=True),
    "random_error": to_path("error", random=True),
    "rdd": of_an_rdd,
    "overwrite": to_path("overwrite"),
    "dynamic": to_path("overwrite", parts=True),
    "insert_into": insert_into(),
    "insert_into_parts": insert_into(parts=True),
    "insert_over": insert_into(overwrite=True),
    "insert_over_dynamic": insert_into(overwrite=True, parts=True),
    "sql_insert": sql_insert("INSERT INTO {table} SELECT * FROM rows"),
    "sql_insert_parts": sql_insert("INSERT INTO {table} SELECT * FROM rows", parts=True),
    "sql_over": sql_insert("INSERT OVERWRITE {table} SELECT * FROM rows"),
    "sql_over_dynamic": sql_insert("INSERT OVERWRITE {table} SELECT * FROM rows", parts=True),
    "sql_over_static": sql_insert("INSERT OVERWRITE {table} SELECT * FROM rows", parts=True, mode="static"),
    "sql_over_one_part": sql_insert(
        "INSERT OVERWRITE {table} PARTITION (half = 0) SELECT id FROM rows", parts=True, mode="static"
    ),
    "added_table": save_as_table("append", there=True),
    "added_parts_table": save_as_table("append", parts=True, there=True),
    # These make a table, which only a catalog that outlives the driver remembers.
    "ctas": ctas(),
    "ctas_at": ctas(placed=True),
    "ctas_parts": ctas("PARTITIONED BY (half)"),
    "hive": hive_ctas(converted=False),
    "hive_converted": hive_ctas(converted=True),
    "hive_saved": hive_saved,
    "new_table": save_as_table("error"),
    "new_parts_table": save_as_table("error", parts=True),
    "appended_table": save_as_table("append"),
    "appended_parts_table": save_as_table("append", parts=True),
    "replaced_table": save_as_table("overwrite"),
}
for one in sys.argv[3:]:
    spark.conf.set(ALGORITHM, algorithm(one))
    spark.conf.set(OVERWRITE_MODE, "dynamic")
    WRITES[one.rpartition("_")[0]](one)
