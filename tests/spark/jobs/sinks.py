"""Writes in many ways, then dies once if a file says so. Usage: sinks.py ORDERS MORE TARGET DIE."""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

orders, more, target = sys.argv[1:4]
die = Path(sys.argv[4])
spark = SparkSession.builder.getOrCreate()
totals = spark.read.parquet(orders).groupBy("customer").agg(F.sum("amount").alias("total"))
totals.write.mode("append").parquet(f"{target}/appended")
twice = totals.write.mode("append").option("compression", "gzip")
twice.json(f"{target}/twice")
twice.json(f"{target}/twice")
totals.orderBy("customer").coalesce(1).write.csv(f"{target}/overwritten", mode="overwrite")
totals.withColumn("digit", F.col("customer") % 3).write.format("orc").partitionBy("digit").mode("append").save(
    f"{target}/by_digit"
)
totals.write.parquet(f"{target}/once")
spark.read.parquet(more).write.mode("append").parquet(f"{target}/changing")
spark.sql(
    f"CREATE TABLE IF NOT EXISTS kept (customer BIGINT, total BIGINT) USING parquet LOCATION 'file:{target}/kept'"
)
totals.write.insertInto("kept")
totals.createOrReplaceTempView("totals")
spark.sql("INSERT INTO kept SELECT * FROM totals")
totals.withColumn("chance", F.rand()).write.mode("append").parquet(f"{target}/random")
if die.exists():
    die.unlink()
    os.kill(os.getpid(), signal.SIGKILL)
