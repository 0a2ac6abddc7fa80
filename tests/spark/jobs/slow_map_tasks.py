"""An aggregate over one map task of a good second for each file. Usage: slow_map_tasks.py SOURCE TARGET"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target = sys.argv[1:3]
spark = SparkSession.builder.config("spark.sql.files.openCostInBytes", "128m").getOrCreate()
text = F.col("id").cast("string")
for _ in range(40):
    text = F.sha2(text, 512)
lines = spark.read.parquet(source).select("id", text.alias("text"))
lines.groupBy("id").agg(F.max("text").alias("most"), F.count("*").alias("count")).write.parquet(target)
