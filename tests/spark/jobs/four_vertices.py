"""Four recovery points in a row; the function of the last one has a bug."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

source, target = sys.argv[1:3]
spark = SparkSession.builder.getOrCreate()


@F.udf("long")
def share(amount: int, total: int) -> int:
    return 100 * amount // (total - total)


orders = checkpoint(spark.read.parquet(source).where("amount > 0"), "orders")
totals = checkpoint(orders.groupBy("customer").agg(F.sum("amount").alias("total")), "totals")
joined = checkpoint(orders.join(totals, "customer"), "joined")
shares = checkpoint(joined.withColumn("share", share("amount", "total")), "shares")
shares.coalesce(1).write.mode("overwrite").parquet(target)
