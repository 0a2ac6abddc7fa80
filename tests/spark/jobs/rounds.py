"""Ranks of pages in rounds, each of them checkpointed by Spark. Usage: rounds.py CHECKPOINTS OUT ROUNDS.

Writes the ranks, and how often each page is linked to.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

checkpoints, out, rounds = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setCheckpointDir(checkpoints)
links = spark.range(4000, numPartitions=4).selectExpr("id % 400 AS page", "(id * 7 + id DIV 400) % 400 AS target")
links = links.distinct().checkpoint()
ranks = links.select("page").distinct().withColumn("rank", F.lit(1000))
for _ in range(int(rounds)):
    shares = links.join(ranks, "page").select("target", (F.col("rank") / 10).cast("long").alias("share"))
    ranks = shares.groupBy(F.col("target").alias("page")).agg(F.sum("share").alias("rank")).checkpoint()
ranks.write.parquet(f"{out}/ranks")
links.groupBy("target").count().write.parquet(f"{out}/links")
