"""Usage: python_functions.py TABLES TARGET. Python and pandas functions: by row, by batch, by group, over windows."""

import sys
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

tables, target = sys.argv[1:3]
spark = SparkSession.builder.appName("python-functions").getOrCreate()
orders = spark.read.parquet(f"{tables}/orders")
lines = spark.read.parquet(f"{tables}/lineitem")


@F.udf("string")
def grade(price):
    """A plain function of a row."""
    return "high" if price > 150_000 else "middle" if price > 50_000 else "low"


@F.pandas_udf("double")
def discounted(price: pd.Series, discount: pd.Series) -> pd.Series:
    """A function of batches."""
    return price.astype("float64") * (1 - discount.astype("float64"))


@F.pandas_udf("double")
def spread(values: pd.Series) -> float:
    """An aggregate in pandas."""
    return float(values.max() - values.min())


def trend(group: pd.DataFrame) -> pd.DataFrame:
    """The running total of a customer's orders."""
    group = group.sort_values(["o_orderdate", "o_orderkey"])
    group["running"] = group["price"].cumsum()
    return group[["o_custkey", "o_orderkey", "price", "running"]]


def long_words(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The long words of comments."""
    for batch in batches:
        words = batch["o_comment"].str.split().explode()
        yield pd.DataFrame({"word": words[words.str.len() > 7]})


graded = orders.withColumn("grade", grade(F.col("o_totalprice").cast("double")))
graded.groupBy("grade", "o_orderstatus").agg(F.count("*").alias("orders")).write.mode("overwrite").parquet(
    f"{target}/grades"
)

net = lines.withColumn("net", discounted("l_extendedprice", "l_discount"))
by_mode = net.groupBy("l_shipmode")
by_mode.agg(F.sum("net").alias("net")).write.mode("overwrite").parquet(f"{target}/shipping")
by_mode.agg(spread(F.col("l_quantity").cast("double")).alias("spread")).write.mode("overwrite").parquet(
    f"{target}/quantities"
)

priced = orders.select("o_custkey", "o_orderkey", "o_orderdate", F.col("o_totalprice").cast("double").alias("price"))
schema = "o_custkey long, o_orderkey long, price double, running double"
priced.groupBy("o_custkey").applyInPandas(trend, schema).write.mode("overwrite").parquet(f"{target}/trends")

words = orders.select("o_comment").mapInPandas(long_words, "word string")
words.groupBy("word").count().orderBy(F.desc("count"), "word").limit(50).write.mode("overwrite").parquet(
    f"{target}/words"
)

by_customer = Window.partitionBy("o_custkey")
priced.withColumn("spread", spread("price").over(by_customer)).where("price = spread or spread = 0").write.mode(
    "overwrite"
).parquet(f"{target}/spreads")
