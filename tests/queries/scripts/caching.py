"""Usage: caching.py TABLES TARGET. Results kept between actions: cache, CACHE TABLE, persist, localCheckpoint."""

import json
import sys
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

tables, target = sys.argv[1:3]
spark = SparkSession.builder.appName("caching").getOrCreate()
orders = spark.read.parquet(f"{tables}/orders")
lines = spark.read.parquet(f"{tables}/lineitem")

# One cached DataFrame, three actions.
months = (
    orders.join(lines, F.col("o_orderkey") == F.col("l_orderkey"))
    .groupBy(F.trunc("o_orderdate", "month").alias("month"), "l_returnflag")
    .agg(F.sum("l_quantity").alias("quantity"), F.count("*").alias("lines"))
    .cache()
)
seen = {"months": months.count()}
months.groupBy("l_returnflag").agg(F.max("quantity").alias("most")).write.mode("overwrite").parquet(f"{target}/most")
months.where("l_returnflag = 'R'").orderBy("month").write.mode("overwrite").parquet(f"{target}/returned")
months.unpersist()
months.groupBy("month").agg(F.sum("lines").alias("lines")).write.mode("overwrite").parquet(f"{target}/lines")

# A cached table, lazily and at once.
orders.createOrReplaceTempView("orders")
spark.sql("CACHE TABLE urgent AS SELECT o_custkey, o_totalprice FROM orders WHERE o_orderpriority = '1-URGENT'")
spark.sql("CACHE LAZY TABLE orders")
seen["urgent"] = spark.sql("SELECT count(*) AS n FROM urgent").first()["n"]
spark.sql(
    "SELECT o_custkey, sum(u.o_totalprice) AS urgent, count(*) AS pairs FROM urgent u JOIN orders o USING (o_custkey) "
    "GROUP BY o_custkey"
).write.mode("overwrite").parquet(f"{target}/urgent")
spark.sql("UNCACHE TABLE orders")
spark.sql("UNCACHE TABLE urgent")

# Persisted on disk, and released before the end.
sizes = lines.groupBy("l_orderkey").agg(F.count("*").alias("size")).persist(StorageLevel.DISK_ONLY)
seen["orders"] = sizes.count()
sizes.groupBy("size").count().write.mode("overwrite").parquet(f"{target}/sizes")
sizes.unpersist(blocking=True)

# An iteration that cuts its lineage at each round: the rank of parts that are ordered together.
pairs = lines.where("l_orderkey % 50 = 0").select("l_orderkey", "l_partkey").distinct()
ranks = pairs.select("l_partkey").distinct().withColumn("rank", F.lit(1).cast("decimal(38,12)"))
for _ in range(2):
    shared = pairs.join(ranks, "l_partkey").groupBy("l_orderkey").agg(F.sum("rank").alias("total"))
    ranks = (
        pairs.join(shared, "l_orderkey")
        .groupBy("l_partkey")
        .agg((F.sum("total") / 100).cast("decimal(38,12)").alias("rank"))
        .localCheckpoint()
    )
ranks.write.mode("overwrite").parquet(f"{target}/ranks")
Path(target, "seen.json").write_text(json.dumps(seen))
