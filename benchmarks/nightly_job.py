"""A nightly job as users write it: one wide join that three outputs use, a window, a pandas UDF, partitioned writes.

Usage: nightly_job.py DATA TARGET; how long each output took is in TARGET/seconds.json.
"""

import json
import sys
import time
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

data, target = Path(sys.argv[1]), Path(sys.argv[2])
spark = SparkSession.builder.appName("nightly").getOrCreate()
tables = {table.name: spark.read.parquet(str(table)) for table in sorted((data / "tables").iterdir())}
line, order, customer = tables["lineitem"], tables["orders"], tables["customer"]
part, supplier, nation, region = tables["part"], tables["supplier"], tables["nation"], tables["region"]


@F.pandas_udf("double")
def discounted(price: pd.Series, discount: pd.Series) -> pd.Series:
    """What was paid, rounded to cents."""
    return (price.astype(float) * (1 - discount.astype(float))).round(2)


sales = (
    line.join(order, F.col("l_orderkey") == F.col("o_orderkey"))
    .join(customer, F.col("o_custkey") == F.col("c_custkey"))
    .join(part, F.col("l_partkey") == F.col("p_partkey"))
    .join(supplier, F.col("l_suppkey") == F.col("s_suppkey"))
    .join(nation, F.col("c_nationkey") == F.col("n_nationkey"))
    .join(region, F.col("n_regionkey") == F.col("r_regionkey"))
    .withColumn("year", F.year("o_orderdate"))
)
by_customer = Window.partitionBy("n_name").orderBy(F.desc("spent"), "c_custkey")
outputs = {
    "by_nation": lambda: sales.groupBy("r_name", "n_name", "year").agg(
        F.sum("l_extendedprice").alias("price"), F.countDistinct("c_custkey").alias("customers")
    ),
    "best_customers": lambda: (
        sales.groupBy("n_name", "c_custkey", "c_name")
        .agg(F.sum("l_extendedprice").alias("spent"), F.count("*").alias("lines"))
        .withColumn("place", F.row_number().over(by_customer))
        .where("place <= 100")
    ),
    "by_brand": lambda: sales.groupBy("p_brand", "year").agg(
        F.sum("l_quantity").alias("quantity"), F.avg("l_discount").alias("discount")
    ),
    "by_supplier": lambda: (
        line.withColumn("paid", discounted("l_extendedprice", "l_discount"))
        .groupBy("l_suppkey", F.year("l_shipdate").alias("year"))
        .agg(F.count("*").alias("lines"), F.max("paid").alias("most"))
    ),
}

seconds = {}
for name, output in outputs.items():
    began = time.monotonic()
    sys.stdout.write(f"output {name} begins\n")
    sys.stdout.flush()
    writer = output().write.mode("overwrite")
    (writer.partitionBy("year") if name in {"by_nation", "by_brand"} else writer).parquet(str(target / name))
    seconds[name] = round(time.monotonic() - began, 3)

(target / "seconds.json").write_text(json.dumps(seconds))
