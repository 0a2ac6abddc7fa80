"""The job of two_vertices.py with a pinned source, a step, and a failure by chance that is restarted in the driver."""

import sys
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint, source, step

folder, target = sys.argv[1:3]
failed = Path(f"{target}-failed")
spark = SparkSession.builder.getOrCreate()
orders = source("orders", spark.read.parquet(folder))
modulus = step("modulus", lambda: 101)


@F.pandas_udf("long")
def grade(total: pd.Series) -> pd.Series:
    if not failed.exists():
        failed.touch()
        raise RuntimeError("by chance")
    return total * 7 % modulus


totals = orders.repartition(6, "customer").groupBy("customer").agg(F.sum("amount").alias("total"))
totals = totals.transform(checkpoint, "totals")
graded = checkpoint(totals.withColumn("grade", grade("total")).repartition(4, "grade"), "graded")
graded.orderBy("customer").coalesce(1).write.mode("overwrite").parquet(target)
