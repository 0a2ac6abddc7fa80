"""Four recovery points with every kind of code and input that a fingerprint has to see. Texts in it are mutated."""

import sys

import pandas as pd
import pricing
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

DATA = sys.argv[1]
LIMIT = 90
OFFSET = 7
WEEKEND = {5, 6}

spark = SparkSession.builder.getOrCreate()
names = spark.sparkContext.broadcast({0: "new", 1: "old"})


def score(amount: int, day: int, bonus: int = 1) -> int:
    """Score an order."""
    weight = 3
    return amount * weight + day + bonus + OFFSET


def scaled(factor):
    return lambda day: (lambda x: x * factor)(day)


class Label:
    prefix = "d"

    def __call__(self, day):
        return f"{self.prefix}{day}"


@F.pandas_udf("double")
def price(amount: pd.Series) -> pd.Series:
    import discounts

    return pricing.price(amount) - discounts.discount(amount)


score_udf = F.udf(score, "long")
orders = spark.read.parquet(f"{DATA}/orders")
regions = spark.createDataFrame([(0, "north"), (1, "south")], "segment long, region string")
clean = orders.where(F.col("amount") < LIMIT).withColumn("kind", F.lit("web"))
clean = checkpoint(clean, "clean")

scored = (
    clean.withColumn("score", score_udf("amount", "day"))
    .withColumn("scaled", F.udf(scaled(2), "long")("day"))
    .withColumn("weekend", F.udf(lambda day: day in WEEKEND, "boolean")("day"))
    .withColumn("age", F.udf(lambda day: names.value[day % 2], "string")("day"))
    .withColumn("label", F.udf(Label(), "string")("day"))
)
scored = checkpoint(scored, "scored")

spark.read.parquet(f"{DATA}/customers").createOrReplaceTempView("customers")
customers = spark.sql("SELECT * FROM customers")
joined = scored.join(customers, "customer").withColumn("price", price("amount"))
joined = checkpoint(joined, "joined")

totals = (
    joined.join(regions, "segment").groupBy("region").agg(F.sum("score").alias("score"), F.sum("price").alias("price"))
)
totals = checkpoint(totals, "totals")

RESULT = sorted(map(str, totals.collect())) + sorted(map(str, joined.collect()))
