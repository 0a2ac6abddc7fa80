"""Two outputs of a cached DataFrame, which one map task of a good second makes for each file.

Usage: cached_frame.py SOURCE TARGET LEVEL
"""

import sys

from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target, level = sys.argv[1:4]
spark = SparkSession.builder.config("spark.sql.files.openCostInBytes", "128m").getOrCreate()
text = F.col("id").cast("string")
for _ in range(40):
    text = F.sha2(text, 512)
frame = spark.read.parquet(source).select("id", (F.col("id") % 100).alias("key"), text.alias("text"))
frame.persist(getattr(StorageLevel, level))
frame.count()
frame.groupBy("key").agg(F.max("text").alias("most"), F.count("*").alias("count")).write.parquet(f"{target}/keys")
frame.where("id % 10 = 0").write.parquet(f"{target}/tenth")
