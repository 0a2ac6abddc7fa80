"""The job of the benchmark of a start: many stored partitions, one of which the script then looks at."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider.spark import checkpoint

target, partitions = Path(sys.argv[1]), int(sys.argv[2])
spark = SparkSession.builder.getOrCreate()
rows = checkpoint(spark.range(0, partitions, 1, partitions), "rows")
assert rows.head(1)
target.write_text(str(time.time()))
