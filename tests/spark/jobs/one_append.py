"""Append 100 rows to a folder of Parquet files, behind a gate. Usage: one_append.py df|sql TARGET GATE."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

how, target, gate = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()
spark.sql(f"CREATE TABLE appended (id BIGINT) USING parquet LOCATION 'file:{target}'")
frame = spark.range(0, 100, 1, 2)
frame.createOrReplaceTempView("rows")
Path(f"{gate}.reached").touch()
while not Path(gate).exists():
    time.sleep(0.05)
if how == "sql":
    spark.sql("INSERT INTO appended SELECT id FROM rows")
else:
    frame.write.mode("append").parquet(target)
Path(f"{gate}.went-on").touch()
