"""Usage: dataframe_api.py TABLES TARGET. Joins, aggregates, windows, unions and self joins with the DataFrame API."""

import sys

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

tables, target = sys.argv[1:3]
spark = SparkSession.builder.appName("dataframe-api").getOrCreate()

orders = spark.read.parquet(f"{tables}/orders")
lines = spark.read.parquet(f"{tables}/lineitem")
customers = spark.read.parquet(f"{tables}/customer")
nations = spark.read.parquet(f"{tables}/nation")

price = (F.col("l_extendedprice") * (1 - F.col("l_discount"))).alias("price")
revenue = (
    lines.select("l_orderkey", price)
    .join(orders, F.col("l_orderkey") == F.col("o_orderkey"))
    .join(customers, F.col("o_custkey") == F.col("c_custkey"))
    .join(F.broadcast(nations), F.col("c_nationkey") == F.col("n_nationkey"))
    .groupBy("n_name", F.year("o_orderdate").alias("year"))
    .agg(F.sum("price").alias("revenue"), F.countDistinct("o_custkey").alias("customers"))
)
by_year = Window.partitionBy("year").orderBy(F.desc("revenue"), "n_name")
before = Window.partitionBy("n_name").orderBy("year")
ranked = revenue.withColumn("rank", F.rank().over(by_year)).withColumn("last", F.lag("revenue").over(before))
ranked.orderBy("year", "rank").write.mode("overwrite").parquet(f"{target}/ranked")

# A self join of an aggregate: each year beside the year before it.
this, past = revenue.alias("this"), revenue.alias("past")
growth = this.join(
    past,
    (F.col("this.n_name") == F.col("past.n_name")) & (F.col("this.year") == F.col("past.year") + 1),
    "left",
).select("this.n_name", "this.year", (F.col("this.revenue") - F.col("past.revenue")).alias("growth"))
growth.write.mode("overwrite").parquet(f"{target}/growth")

# A union of three shapes of the same orders, and a pivot over it.
urgent = orders.where("o_orderpriority = '1-URGENT'").select("o_orderkey", F.lit("urgent").alias("kind"))
dear = orders.where("o_totalprice > 200000").select("o_orderkey", F.lit("dear").alias("kind"))
late = (
    lines.where("l_receiptdate > l_commitdate")
    .select(F.col("l_orderkey").alias("o_orderkey"), F.lit("late").alias("kind"))
    .distinct()
)
kinds = urgent.unionByName(dear).union(late).groupBy("o_orderkey").pivot("kind", ["urgent", "dear", "late"]).count()
kinds.na.fill(0).groupBy("urgent", "dear", "late").count().write.mode("overwrite").parquet(f"{target}/kinds")

# Customers without an order, and those with only one.
idle = customers.join(orders, F.col("c_custkey") == F.col("o_custkey"), "left_anti").select("c_custkey", "c_acctbal")
idle.repartition(3, "c_custkey").sortWithinPartitions("c_custkey").write.mode("overwrite").parquet(f"{target}/idle")
