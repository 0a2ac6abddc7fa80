"""Usage: stopping.py TABLES TARGET. Settings changed on the way, two sessions, and a session that is stopped."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

tables, target = sys.argv[1:3]
spark = SparkSession.builder.appName("stopping").getOrCreate()
parts = spark.read.parquet(f"{tables}/part")
sizes = parts.groupBy("p_size").agg(F.count("*").alias("parts"), F.avg("p_retailprice").alias("price"))
sizes.write.mode("overwrite").parquet(f"{target}/sizes")

other = spark.newSession()
other.conf.set("spark.sql.adaptive.enabled", "false")
other.conf.set("spark.sql.shuffle.partitions", "3")
brands = other.read.parquet(f"{tables}/part").groupBy("p_brand").agg(F.max("p_size").alias("largest"))
brands.join(other.read.parquet(f"{tables}/part"), "p_brand").where("p_size = largest").select(
    "p_brand", "p_partkey"
).write.mode("overwrite").parquet(f"{target}/largest")
spark.stop()

spark = SparkSession.builder.appName("stopped").getOrCreate()
types = spark.read.parquet(f"{target}/sizes").where("parts > 0").agg(F.sum("parts").alias("parts"))
types.write.mode("overwrite").parquet(f"{target}/after")
spark.stop()
