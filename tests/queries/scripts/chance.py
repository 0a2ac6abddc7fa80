"""Usage: chance.py TABLES TARGET. Random numbers, identifiers and the clock: what must agree within one run does.

The drawn rows differ from run to run, so they are kept in a folder whose name begins with "_", and only what every run
must find is reported.
"""

import datetime as dt
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

tables, target = sys.argv[1], Path(sys.argv[2])
drawn = f"{target}/_drawn"
started = dt.datetime.now()
spark = SparkSession.builder.appName("chance").getOrCreate()
orders = spark.read.parquet(f"{tables}/orders")
found = {}

# Two samples of one cached draw, which together are the whole and have nothing in common.
chance = orders.groupBy("o_custkey").agg(F.sum("o_totalprice").alias("price")).withColumn("r", F.rand()).cache()
chance.where("r < 0.5").write.mode("overwrite").parquet(f"{drawn}/low")
chance.where("r >= 0.5").write.mode("overwrite").parquet(f"{drawn}/high")
low, high = spark.read.parquet(f"{drawn}/low"), spark.read.parquet(f"{drawn}/high")
found["both"] = low.join(high, "o_custkey").count()
found["either"] = low.union(high).count()
found["price"] = str(low.union(high).agg(F.sum("price")).first()[0])
chance.unpersist()

# Identifiers that no two rows share.
keyed = orders.repartition(3, "o_custkey").select(
    F.expr("uuid()").alias("id"), F.monotonically_increasing_id().alias("n")
)
keyed.write.mode("overwrite").parquet(f"{drawn}/keyed")
keys = spark.read.parquet(f"{drawn}/keyed")
found["ids"] = keys.select("id").distinct().count()
found["numbers"] = keys.select("n").distinct().count()

# The time of a query is one, and not before the start of the run that asked.
stamped = orders.groupBy("o_orderstatus").count().withColumn("at", F.current_timestamp())
stamped.write.mode("overwrite").parquet(f"{drawn}/stamped")
times = [row.at for row in spark.read.parquet(f"{drawn}/stamped").select("at").distinct().collect()]
found["times"] = len(times)
found["fresh"] = all(started <= time <= dt.datetime.now() for time in times)

# Which rows come first is nobody's promise, but how many is.
some = orders.join(orders.limit(100).select("o_orderkey"), "o_orderkey", "left_semi")
some.write.mode("overwrite").parquet(f"{drawn}/some")
found["some"] = spark.read.parquet(f"{drawn}/some").count()
(target / "found.json").write_text(json.dumps(found))
