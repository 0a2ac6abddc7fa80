"""A job of some steps, drawn from a seed, that writes in every way and knows nothing of being killed.

Usage: script.py SEED OUT WITNESS. Its rows are the same in each run. What it is about to write, and what was written,
it notes in WITNESS, with the time and its process.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider.spark import checkpoint

seed, out, witness = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
draw = random.Random(f"steps {seed}")


def session() -> SparkSession:
    return SparkSession.builder.appName("torture").getOrCreate()


def note(what: str, name: str) -> None:
    with witness.open("a") as file:
        file.write(f"{what} {name} {os.getpid()} {time.time():.3f}\n")


def write(name: str, action: Callable[[], object]) -> None:
    note("begin", name)
    action()
    note("end", name)


@F.udf(T.LongType())
def slowly(value: int) -> int:
    if value % 100 == 0:
        time.sleep(0.02)
    return value * 3


def rows(step: int, size: int = 2000) -> DataFrame:
    """Rows of one step: behind a shuffle whose tasks take their time, as the tasks behind it do."""
    numbers = session().range(0, size, 1, 3).withColumn("value", slowly("id"))
    grouped = numbers.groupBy((F.col("id") % 400).alias("id")).agg(F.sum("value").alias("value"))
    return grouped.select(F.lit(step).alias("step"), "id", slowly("value").alias("value"), part("id"))


def part(column: str) -> Column:
    return (F.col(column) % 3).alias("part")


def append(step: int) -> None:
    write(f"append {step}", lambda: rows(step).write.mode("append").parquet(f"{out}/log"))


def append_partitioned(step: int) -> None:
    writer = rows(step).write.mode("append").partitionBy("part")
    write(f"append {step}", lambda: writer.json(f"{out}/parts"))


def overwrite(step: int) -> None:
    write(f"overwrite {step}", lambda: rows(step).write.mode("overwrite").orc(f"{out}/whole"))


def dynamic(step: int) -> None:
    frame = rows(step).where(F.col("part") == step % 3)
    writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("part")
    write(f"dynamic {step}", lambda: writer.parquet(f"{out}/dynamic"))


def new(step: int) -> None:
    write(f"new {step}", lambda: rows(step).write.csv(f"{out}/new-{step}"))


def insert(step: int) -> None:
    spark = session()
    spark.sql(
        "CREATE TABLE IF NOT EXISTS inserted (step INT, id BIGINT, value BIGINT, part BIGINT) "
        f"USING parquet LOCATION 'file:{out}/inserted'"
    )
    rows(step).createOrReplaceTempView("rows_of_a_step")
    write(f"insert {step}", lambda: spark.sql("INSERT INTO inserted SELECT * FROM rows_of_a_step"))


def application(step: int) -> None:
    append(step)
    session().stop()


def threads(step: int) -> None:
    writers = {side: rows(step).write.mode("append") for side in ("left", "right")}
    at_work = [
        threading.Thread(
            target=write, args=(f"{side} {step}", lambda side=side: writers[side].parquet(f"{out}/{side}"))
        )
        for side in writers
    ]
    for thread in at_work:
        thread.start()
    for thread in at_work:
        thread.join()


def cached(step: int) -> None:
    frame = rows(step).cache()
    write(f"log {step}", lambda: frame.write.mode("append").parquet(f"{out}/log"))
    write(f"total {step}", lambda: frame.groupBy("part").count().write.mode("append").parquet(f"{out}/totals"))
    frame.unpersist()


def named(step: int) -> None:
    frame = checkpoint(rows(step), f"step {step}")
    write(f"named {step}", lambda: frame.write.mode("append").parquet(f"{out}/log"))


def read_back(step: int) -> None:
    source = f"{out}/source-{step}"
    write(f"source {step}", lambda: rows(step).write.mode("overwrite").parquet(source))
    grouped = session().read.parquet(source).groupBy("part").agg(F.sum("value").alias("value"))
    write(f"read back {step}", lambda: grouped.write.mode("append").parquet(f"{out}/sums"))


def of_this_run(step: int) -> DataFrame:
    """Rows that another run cannot be sure to make again, and does."""
    return rows(step).where((F.rand() < 2) & (F.lit(str(uuid.uuid4())) != "none"))


def newest(step: int) -> None:
    """What is newer than the newest row that is there."""
    target = Path(f"{out}/newest-{step}")
    there = session().read.parquet(str(target)).agg(F.max("id")).first() if (target / "_SUCCESS").exists() else None
    frame = of_this_run(step).where(F.col("id") > (there[0] if there and there[0] is not None else -1))
    write(f"newest {step}", lambda: frame.write.mode("append").parquet(str(target)))


def remade(step: int) -> None:
    write(f"remade {step}", lambda: of_this_run(step).write.orc(f"{out}/remade-{step}"))


def several(step: int) -> None:
    spark = session()
    for side in ("several", "singles"):
        columns = "step INT, id BIGINT, value BIGINT, part BIGINT"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {side} ({columns}) USING parquet LOCATION 'file:{out}/{side}'")
    rows(step).createOrReplaceTempView("rows_of_two")
    inserts = "FROM rows_of_two INSERT INTO several SELECT * INSERT INTO singles SELECT * WHERE part = 1"
    write(f"several {step}", lambda: spark.sql(inserts))
    one = "INSERT INTO several SELECT * FROM rows_of_two WHERE part = :part"
    write(f"parameter {step}", lambda: spark.sql(one, {"part": 2}))


STEPS = (
    *(append, append_partitioned, overwrite, dynamic, new, insert, application, threads, cached, named, read_back),
    *(newest, remade, several),
)

for number, one in enumerate(draw.sample(STEPS, 5)):
    one(number)
note("end", "script")
