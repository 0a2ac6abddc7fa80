"""A shuffle whose reducers wait for a gate, in plain Python. Usage: no_packages.py SOURCE TARGET GATE [MASTER]

Says for the driver and for each task which packages it lacks.
"""

import importlib.util
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target, gate, *master = sys.argv[1:]
spark = SparkSession.builder.master(*master).getOrCreate() if master else SparkSession.builder.getOrCreate()


def lacking(_: int) -> str:
    while not Path(gate).exists():
        time.sleep(0.05)
    return " ".join(name for name in ("boto3", "pandas", "pyarrow") if importlib.util.find_spec(name) is None)


orders = spark.read.parquet(source)
totals = orders.groupBy("customer").agg(F.sum("amount").alias("total"), F.max("amount").alias("most"))
lacks = F.udf(lacking, "string", useArrow=False)
totals.withColumn("lacks", lacks("customer")).write.mode("overwrite").parquet(target)
sys.stdout.write(f"DRIVER lacks {lacking(0)}\n")
