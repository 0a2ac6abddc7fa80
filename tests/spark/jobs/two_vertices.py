"""A small job with two recovery points: totals per customer, then a grade that a pandas UDF computes."""

import sys

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

source, target = sys.argv[1:3]
spark = SparkSession.builder.getOrCreate()


@F.pandas_udf("long")
def grade(total: pd.Series) -> pd.Series:
    return total * 7 % 101


orders = spark.read.parquet(source)
totals = orders.repartition(6, "customer").groupBy("customer").agg(F.sum("amount").alias("total"))
totals = totals.transform(checkpoint, "totals")
graded = checkpoint(totals.withColumn("grade", grade("total")).repartition(4, "grade"), "graded")
if sys.argv[3:] == ["count"]:
    sys.stdout.write(f"{graded.count()} graded\n")
graded.orderBy("customer").coalesce(1).write.mode("overwrite").parquet(target)
