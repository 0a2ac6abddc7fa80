"""The job of the retry benchmark: a costly score for every line item, in 20 partitions, then its sums by month."""

import sys

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

source, target, iterations = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = SparkSession.builder.getOrCreate()


@F.pandas_udf("double")
def score(price: pd.Series, quantity: pd.Series) -> pd.Series:
    """A fixed-point iteration in place of a model."""
    weight = np.sqrt(quantity.to_numpy(dtype="float64"))
    x = np.log1p(price.to_numpy(dtype="float64"))
    for _ in range(iterations):
        x = np.sin(x) + weight
    return pd.Series(x)


if iterations:
    lines = spark.read.parquet(source).select("l_orderkey", "l_extendedprice", "l_quantity", "l_shipdate")
    scored = lines.repartition(20, "l_orderkey").withColumn("score", score("l_extendedprice", "l_quantity"))
    scored = checkpoint(scored, "scored")
    month = F.trunc("l_shipdate", "month").alias("month")
    sums = scored.groupBy(month).agg(F.count("*").alias("lines"), F.round(F.sum("score"), 3).alias("score"))
    sums.orderBy("month").coalesce(1).write.mode("overwrite").parquet(target)
else:
    spark.range(1).count()  # what starting costs
