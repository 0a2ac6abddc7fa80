"""Usage: machine_learning.py TABLES TARGET. An ML pipeline: vectors, scaling, clusters, a classifier."""

import json
import sys
from pathlib import Path

from pyspark.ml import Pipeline
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.clustering import KMeans
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import StandardScaler, StringIndexer, VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

tables, target = sys.argv[1:3]
spark = SparkSession.builder.appName("machine-learning").getOrCreate()
orders = spark.read.parquet(f"{tables}/orders")
customers = spark.read.parquet(f"{tables}/customer")

habits = (
    customers.join(orders, F.col("c_custkey") == F.col("o_custkey"))
    .groupBy("c_custkey", "c_mktsegment", F.col("c_acctbal").cast("double").alias("balance"))
    .agg(
        F.count("*").cast("double").alias("orders"),
        F.avg(F.col("o_totalprice").cast("double")).alias("price"),
        F.max((F.col("o_orderpriority") == "1-URGENT").cast("double")).alias("urgent"),
    )
    .coalesce(2)
    .sortWithinPartitions("c_custkey")
)
features = Pipeline(
    stages=[
        StringIndexer(inputCol="c_mktsegment", outputCol="segment", stringOrderType="alphabetAsc"),
        VectorAssembler(inputCols=["balance", "orders", "price", "segment"], outputCol="raw"),
        StandardScaler(inputCol="raw", outputCol="features", withMean=True),
    ]
)
prepared = features.fit(habits).transform(habits).cache()
prepared.select("c_custkey", vector_to_array("features").alias("features")).write.mode("overwrite").parquet(
    f"{target}/features"
)

clusters = KMeans(k=3, seed=7, maxIter=5, initMode="random").fit(prepared)
sizes = clusters.transform(prepared).groupBy("prediction").count()
sizes.write.mode("overwrite").parquet(f"{target}/clusters")

model = LogisticRegression(labelCol="urgent", maxIter=5, regParam=0.1).fit(prepared)
scored = model.transform(prepared)
area = BinaryClassificationEvaluator(labelCol="urgent").evaluate(scored)
scored.select("c_custkey", F.round(vector_to_array("probability")[1], 6).alias("chance")).write.mode(
    "overwrite"
).parquet(f"{target}/chances")
figures = {"area": round(area, 6), "coefficients": [round(float(number), 6) for number in model.coefficients]}
Path(target, "model.json").write_text(json.dumps(figures))
