"""A checkpoint, in plain Python. Usage: one_checkpoint.py SOURCE TARGET"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

source, target = sys.argv[1:3]
orders = SparkSession.builder.getOrCreate().read.parquet(source)
totals = orders.groupBy("customer").agg(F.sum("amount").alias("total"), F.max("amount").alias("most"))
checkpoint(totals, "totals").write.mode("overwrite").parquet(target)
