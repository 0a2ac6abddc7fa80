"""A recovery point, a shuffle above it and a write; half of the tasks of one of the two wait for a gate, a file.

At the end samples with a seed, and the same one by the JVM's own Dataset, which nothing looks at.

Usage: every_version.py SOURCE TARGET GATE checkpoint|shuffle
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

source, target, gate, held = sys.argv[1:5]
spark = SparkSession.builder.getOrCreate()


def wait_in(step: str) -> None:
    while step == held and TaskContext.get().partitionId() >= 2 and not Path(gate).exists():
        time.sleep(0.05)


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        wait_in("checkpoint")
        yield pa.record_batch([batch["customer"], pc.multiply(batch["amount"], 2)], ["customer", "amount"])


def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        wait_in("shuffle")
        names = [f"customer {customer}" for customer in batch["customer"].to_pylist()]
        yield pa.record_batch([pa.array(names), batch["amount"]], ["name", "amount"])


orders = spark.read.parquet(source)
amounts = checkpoint(orders.mapInArrow(doubled, "customer long, amount long"), "amounts")
totals = amounts.mapInArrow(named, "name string, amount long").groupBy("name").agg(F.sum("amount").alias("total"))
totals.write.mode("overwrite").parquet(target)
samples = {
    "plain": DataFrame(orders._jdf.sample(False, 0.5, 3), spark),
    "named": orders.sample(fraction=0.5, seed=3),
    "seed named": orders.sample(0.5, seed=3),
}
Path(f"{target}-samples.json").write_text(json.dumps({name: df.collect() for name, df in samples.items()}))
