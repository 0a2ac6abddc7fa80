"""Append sales, and fail in the first try: ``spark-submit append_once_job.py OUTPUT_DIR``."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

output_dir = sys.argv[1]
spark = SparkSession.builder.appName("append_once").getOrCreate()

spark.range(1_000).withColumnRenamed("id", "sale").coalesce(1).write.mode("append").parquet(output_dir)

tried = Path(f"{output_dir}.tried")
if not tried.exists():
    tried.touch()
    raise RuntimeError("The first try fails on purpose, after its append.")
