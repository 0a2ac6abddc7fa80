"""Usage: tables.py TABLES TARGET. CREATE TABLE AS, INSERT INTO, insertInto, saveAsTable, partitionBy, other formats."""

import shutil
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

tables, target = sys.argv[1:3]
spark = SparkSession.builder.appName("tables").getOrCreate()
orders = spark.read.parquet(f"{tables}/orders")
orders.createOrReplaceTempView("source")
shutil.rmtree(target, ignore_errors=True)  # a job that can be run again clears what its last run left

spark.sql(
    f"""
    CREATE TABLE yearly USING parquet LOCATION '{target}/yearly' AS
    SELECT o_custkey, year(o_orderdate) AS year, sum(o_totalprice) AS price FROM source GROUP BY 1, 2
    """
)
spark.sql("INSERT INTO yearly SELECT o_custkey, 0, sum(price) FROM yearly WHERE year <= 1994 GROUP BY o_custkey")
late = spark.table("yearly").where("year > 1996").groupBy("o_custkey").agg(F.lit(1).alias("year"), F.sum("price"))
late.write.insertInto("yearly")
spark.table("yearly").groupBy("year").agg(F.count("*").alias("customers"), F.sum("price").alias("price")).write.option(
    "path", f"{target}/summary"
).saveAsTable("summary")

# Files by partition, and one partition overwritten.
shape = orders.select("o_orderkey", "o_custkey", "o_totalprice", "o_orderstatus", F.year("o_orderdate").alias("year"))
shape.repartition("year").write.partitionBy("year", "o_orderstatus").parquet(f"{target}/by_year")
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
again = spark.read.parquet(f"{target}/by_year").where("year = 1995 and o_totalprice > 100000").localCheckpoint()
again.write.mode("overwrite").partitionBy("year", "o_orderstatus").parquet(f"{target}/by_year")
spark.conf.unset("spark.sql.sources.partitionOverwriteMode")

# Other formats, and a read of what was just written.
small = spark.table("summary").join(spark.range(3).withColumnRenamed("id", "year"), "year", "left_semi")
small.coalesce(1).write.json(f"{target}/json")
spark.read.parquet(f"{target}/by_year").groupBy("year", "o_orderstatus").count().coalesce(1).write.csv(
    f"{target}/csv", header=True
)
