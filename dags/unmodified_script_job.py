"""Revenue per product of one region: ``spark-submit unmodified_script_job.py REGION OUTPUT_DIR``.

An ordinary PySpark script. It generates its sales, so it needs no input.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

region, output_dir = sys.argv[1:]
spark = SparkSession.builder.appName(f"revenue-{region}").getOrCreate()

sales = spark.range(10_000).select(
    (F.col("id") % 7).alias("product"),
    (F.col("id") % 100 + (1 if region == "north" else 2)).alias("amount"),
)
revenue = sales.groupBy("product").agg(F.sum("amount").alias("revenue"))
revenue.coalesce(1).write.mode("overwrite").parquet(output_dir)
