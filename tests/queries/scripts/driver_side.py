"""Usage: driver_side.py TABLES TARGET. Results that come to the driver or leave from the executors without a writer."""

import json
import shutil
import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

tables, target = sys.argv[1], Path(sys.argv[2])
spark = SparkSession.builder.appName("driver-side").getOrCreate()
orders = spark.read.parquet(f"{tables}/orders")
lines = spark.read.parquet(f"{tables}/lineitem")
target.mkdir(parents=True, exist_ok=True)

status = orders.groupBy("o_orderstatus").agg(F.count("*").alias("orders"), F.sum("o_totalprice").alias("price"))
found = {
    "collect": sorted((row.o_orderstatus, row.orders, str(row.price)) for row in status.collect()),
    "count": lines.join(orders, F.col("l_orderkey") == F.col("o_orderkey")).where("o_orderstatus = 'F'").count(),
    "first": orders.orderBy(F.desc("o_totalprice"), "o_orderkey").first().o_orderkey,
    "take": [row.o_orderkey for row in orders.orderBy("o_totalprice", "o_orderkey").take(5)],
    "tail": [row.o_orderkey for row in orders.orderBy("o_orderkey").tail(2)],
    "empty": orders.where("o_totalprice < 0").isEmpty(),
    "iterated": sum(row.n for row in orders.groupBy("o_custkey").agg(F.count("*").alias("n")).toLocalIterator()),
    "columns": orders.limit(0).toPandas().columns.tolist(),
}

frame = lines.groupBy("l_shipmode").agg(F.sum("l_quantity").cast("double").alias("quantity")).toPandas()
frame["share"] = (frame["quantity"] / frame["quantity"].sum()).round(9)
found["pandas"] = frame.sort_values("l_shipmode").to_dict("records")

# The driver's answer decides what is computed next.
modes = frame.nlargest(2, "quantity")["l_shipmode"].tolist()
chosen = lines.where(F.col("l_shipmode").isin(modes)).groupBy("l_shipmode", "l_linestatus").count()
chosen.write.mode("overwrite").parquet(str(target / "chosen"))

# Executors write files of their own.
folder = str(target / "sent")
shutil.rmtree(folder, ignore_errors=True)
Path(folder).mkdir()


def send(rows):
    """Write a partition's rows, as a client of some service would send them."""
    text = "".join(json.dumps({"customer": row.o_custkey, "orders": row.n}) + "\n" for row in rows)
    Path(folder, f"part-{TaskContext.get().partitionId():03}.jsonl").write_text(text)


orders.groupBy("o_custkey").agg(F.count("*").alias("n")).where("n > 20").foreachPartition(send)
(target / "found.json").write_text(json.dumps(found))
