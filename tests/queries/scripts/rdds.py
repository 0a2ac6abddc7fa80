"""Usage: rdds.py TABLES TARGET. RDD code beside DataFrames: there and back, broadcasts, accumulators, zips."""

import json
import sys
from operator import add
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

tables, target = sys.argv[1:3]
spark = SparkSession.builder.appName("rdds").getOrCreate()
sc = spark.sparkContext
orders = spark.read.parquet(f"{tables}/orders")
nations = spark.read.parquet(f"{tables}/nation")

# From a DataFrame to an RDD and back.
words = orders.select("o_comment").rdd.flatMap(lambda row: row.o_comment.split()).map(lambda word: (word, 1))
counts = words.reduceByKey(add, 4).filter(lambda pair: pair[1] > 100)
counted = counts.map(lambda pair: Row(word=pair[0], count=pair[1])).toDF()
counted.orderBy(F.desc("count"), "word").write.mode("overwrite").parquet(f"{target}/words")

# A broadcast variable made of a query, used in an RDD, joined with a DataFrame.
names = sc.broadcast({row.n_nationkey: row.n_name for row in nations.collect()})
skipped = sc.accumulator(0)


def labelled(key):
    """A number's nation, or nothing."""
    if key % 7 == 0:
        skipped.add(1)
        return []
    return [(names.value[key % 25], key)]


labels = sc.parallelize(range(1, 500), 3).flatMap(labelled).groupByKey(2).mapValues(sum)
totals = spark.createDataFrame(labels, "n_name string, total long")
totals.join(nations, "n_name").select("n_name", "n_regionkey", "total").write.mode("overwrite").parquet(
    f"{target}/labels"
)

# An order of one's own.
dearest = orders.select("o_orderkey", "o_totalprice").orderBy(F.desc("o_totalprice"), "o_orderkey").limit(20)
numbered = dearest.rdd.map(tuple).sortBy(lambda row: (-row[1], row[0]), numPartitions=2).zipWithIndex()
lines = numbered.map(
    lambda pair: json.dumps({"place": pair[1], "order": pair[0][0], "price": str(pair[0][1])})
).collect()
Path(target).mkdir(parents=True, exist_ok=True)
Path(target, "dearest.json").write_text(json.dumps([json.loads(line) for line in lines]))
Path(target, "skipped.json").write_text(json.dumps({"skipped": skipped.value, "orders": orders.rdd.count()}))
