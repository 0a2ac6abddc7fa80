"""Adds 100 rows to an Iceberg table and fails behind it, until it is told not to.

Usage: added_to_iceberg.py FAIL with a file FAIL for as long as it is to fail.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE TABLE IF NOT EXISTS lake.db.events (id BIGINT) USING iceberg")
spark.range(100).writeTo("lake.db.events").append()
if Path(sys.argv[1]).exists():
    raise RuntimeError("told to fail")
