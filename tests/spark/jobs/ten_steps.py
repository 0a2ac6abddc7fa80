"""Ten recovery points, each read only by the next one; all are about as large."""

import sys

from pyspark.sql import DataFrame, SparkSession

from airflow_provider.spark import checkpoint

target, steps = sys.argv[1], 10
spark = SparkSession.builder.getOrCreate()


def step(df: DataFrame) -> DataFrame:
    return df.selectExpr("id", "(amount * 31 + 7) % 100003 AS amount", "sha2(text, 256) AS text")


df = checkpoint(spark.range(0, 8000, 1, 4).selectExpr("id", "id AS amount", "string(id) AS text"), "step-0")
for number in range(1, steps):
    df = checkpoint(step(df), f"step-{number}")
df.selectExpr("id", "amount").coalesce(1).write.mode("overwrite").parquet(target)
