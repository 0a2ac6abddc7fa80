"""A job whose first partition cannot be compressed below the size from which S3 uploads go in parts."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

(target,) = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.range(0, 900_000, 1, 3).where("id < 300000 OR id % 1000 = 0")
noise = checkpoint(rows.withColumn("noise", F.unhex(F.sha2(F.col("id").cast("string"), 512))), "noise")
summary = noise.agg(F.count("*").alias("rows"), F.bit_xor(F.xxhash64("id", "noise")).alias("digest"))
summary.coalesce(1).write.mode("overwrite").parquet(target)
