"""SQL queries one after another, each written as Parquet: what a nightly job does.

Usage: queries.py DATA TARGET [NUMBER ...]; without numbers all queries of DATA. How long each
took is in TARGET/seconds.json.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

data, target = Path(sys.argv[1]), Path(sys.argv[2])
numbers = [int(text) for text in sys.argv[3:]] or sorted(int(file.stem) for file in (data / "queries").glob("*.sql"))

spark = SparkSession.builder.appName("queries").getOrCreate()
for table in sorted((data / "tables").iterdir()):
    spark.read.parquet(str(table)).createOrReplaceTempView(table.name)

seconds = {}
for number in numbers:
    began = time.monotonic()
    sys.stdout.write(f"query {number} begins\n")
    sys.stdout.flush()
    result = spark.sql((data / "queries" / f"{number:02}.sql").read_text())
    result.write.mode("overwrite").parquet(str(target / f"{number:02}"))
    seconds[number] = round(time.monotonic() - began, 3)

(target / "seconds.json").write_text(json.dumps(seconds))
