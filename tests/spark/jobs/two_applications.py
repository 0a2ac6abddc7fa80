"""A loop over days, an application each, with a broadcast variable. Usage: two_applications.py TARGET [DIE]"""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

target = Path(sys.argv[1])
for day in (1, 2, 3):
    spark = SparkSession.builder.getOrCreate()
    names = spark.sparkContext.broadcast({number: f"day {day}, {number}" for number in range(4)})

    @F.udf("string")
    def named(number, names=names):
        return names.value[number % 4]

    kept = checkpoint(spark.range(8).withColumn("name", named("id")), "named")
    kept.orderBy("id").coalesce(1).write.mode("overwrite").csv(str(target / str(day)))
    spark.stop()
if len(sys.argv) > 2 and Path(sys.argv[2]).exists():
    Path(sys.argv[2]).unlink()
    os.kill(os.getpid(), signal.SIGKILL)
