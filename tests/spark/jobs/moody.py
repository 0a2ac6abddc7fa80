"""A job that ends as its arguments say."""

import argparse
import sys

from pyspark.sql import SparkSession

from airflow_provider.spark import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--target", required=True)
parser.add_argument("--mood", required=True)
arguments = parser.parse_args()

spark = SparkSession.builder.getOrCreate()
base = checkpoint(spark.range(0, 100, 1, 8).selectExpr("id", "id * 3 AS tripled"), "base")
if arguments.mood == "bad":
    raise ValueError("the answer is missing")
base.coalesce(1).write.parquet(arguments.target)
spark.stop()
sys.exit(0)
