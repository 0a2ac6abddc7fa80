"""A shuffle whose reducers wait for a gate, a file. Usage: held_reducers.py SOURCE TARGET GATE"""

import sys
import time
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

source, target, gate = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()


def add_up(customer: tuple[int], orders: pd.DataFrame) -> pd.DataFrame:
    while not Path(gate).exists():
        time.sleep(0.05)
    amounts = orders["amount"]
    return pd.DataFrame({"customer": [customer[0]], "total": [amounts.sum()], "most": [amounts.max()]})


orders = spark.read.parquet(source)
totals = orders.groupBy("customer").applyInPandas(add_up, "customer long, total long, most long")
totals.write.mode("overwrite").parquet(target)
