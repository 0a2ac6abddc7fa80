"""Libraries above Spark SQL: pyspark.ml and pandas on Spark, in part."""

from __future__ import annotations

from random import Random

from tests.differential.case import Case
from tests.differential.cases.text import case

LEARNING = (
    """
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.feature import VectorAssembler
    t = spark.table("facts").groupBy("k").agg(F.count("*").alias("c")).repartition(1).sortWithinPartitions("k")
    features = VectorAssembler(inputCols=["k", "c"], outputCol="features").transform(t)
    model = KMeans(k=3, seed=$p, maxIter=3).fit(features)
    r.value("centers", [[round(float(y), 6) for y in x] for x in model.clusterCenters()], layout=True)
    r.value("clusters", model.summary.k)
    """,
    """
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.feature import VectorAssembler
    t = spark.table("facts").select(F.col("b").cast("double").alias("label"), "k", "id").coalesce(1)
    train, test = VectorAssembler(inputCols=["k", "id"], outputCol="features").transform(t).randomSplit([0.8, 0.2], $p)
    model = LogisticRegression(maxIter=3).fit(train)
    r.value("coefficients", [round(float(x), 7) for x in model.coefficients])
    r.value("predicted", model.transform(test).count())
    """,
    """
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import Bucketizer, OneHotEncoder, StringIndexer
    t = spark.table("events").select("kind", F.col("k").cast("double").alias("k"))
    stages = [StringIndexer(inputCol="kind", outputCol="i"), OneHotEncoder(inputCol="i", outputCol="v"),
              Bucketizer(splits=[-1.0, $p, 1000.0], inputCol="k", outputCol="b")]
    made = Pipeline(stages=stages).fit(t).transform(t)
    r.rows("features", made.select("kind", "i", "b", F.col("v").cast("string")).distinct().collect())
    """,
    """
    from pyspark.ml.recommendation import ALS
    t = spark.table("events").select("k", "eid", F.lit(1.0).alias("x")).where("eid < 90").coalesce(1)
    model = ALS(userCol="k", itemCol="eid", ratingCol="x", maxIter=2, rank=2, seed=$p).fit(t)
    r.value("users", model.userFactors.count())
    """,
)
PANDAS = (
    """
    import pyspark.pandas as ps
    t = ps.read_parquet(f"{data}/facts")[["id", "k", "v"]]
    r.text("grouped", t.groupby("k")["v"].sum().sort_index().head($p).to_string())
    r.text("described", str(t["v"].max() - t["v"].min()))
    r.text("sorted", t.sort_values(["v", "id"]).head(6).to_string())
    """,
    """
    import pyspark.pandas as ps
    t = ps.DataFrame({"a": list(range($p)), "b": [n % 4 for n in range($p)]})
    t["c"] = t["a"] * 2 + t["b"]
    r.text("frame", t.groupby("b").agg({"a": "max", "c": "min"}).sort_index().to_string())
    r.text("merged", t.merge(t, on="b", suffixes=("_x", "_y")).groupby("b").size().sort_index().to_string())
    """,
    """
    t = spark.table("events").pandas_api(index_col="eid")
    r.text("counts", t["kind"].value_counts().sort_index().to_string())
    r.value("shape", list(t[t["k"] > $p].shape))
    r.value("unique", sorted(t["kind"].unique().tolist()))
    """,
)


def learning(random: Random) -> Case:
    return case("learning", random.choice(LEARNING), p=random.randrange(11, 60))


def pandas(random: Random) -> Case:
    return case("pandas", random.choice(PANDAS), p=random.randrange(11, 60))


FAMILIES = {"learning": learning, "pandas": pandas}
