"""A join and an aggregate over many small tasks; knows nothing of recovery. Usage: unmodified.py SOURCE TARGET"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target = sys.argv[1:3]
spark = SparkSession.builder.getOrCreate()
orders = spark.read.parquet(source)
totals = orders.groupBy("customer").agg(F.sum("amount").alias("total"), F.max("amount").alias("most"))
totals.write.mode("overwrite").parquet(target)
