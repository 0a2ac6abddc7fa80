"""Draws: with a seed they are compared, without one only what must hold for every draw."""

from __future__ import annotations

from random import Random

from tests.differential.case import Case
from tests.differential.cases.text import case

DRAWS = (
    """
    t = spark.table("facts").select("id", "k")$spread
    drawn = [sorted(x.id for x in t.sample(0.5).collect()) for _ in range(4)]
    r.value("distinct samples", len({tuple(x) for x in drawn}))
    r.value("sizes", all(1200 < len(x) < 1800 for x in drawn))
    """,
    """
    t = spark.table("facts").select("id", "k")$spread
    a, b = t.sample(0.5), t.sample(0.5)
    both = a.join(b, "id").count()
    r.value("independent", 550 < both < 950)
    """,
    """
    t = spark.table("facts").select("id")$spread
    sums = [str(t.withColumn("x", F.rand()).agg(F.sum("x")).first()[0]) for _ in range(3)]
    r.value("distinct sums", len(set(sums)))
    """,
    """
    t = spark.table("facts").select("id", "v")$spread
    parts = t.randomSplit([0.3, 0.3, 0.4])
    ids = [x.id for part in parts for x in part.collect()]
    r.value("all", len(ids))
    r.value("once", len(set(ids)))
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.count("*").alias("c"))
    train, test = t.randomSplit([0.7, 0.3], seed=$p)
    one, two = {x.k for x in train.collect()}, set(test.rdd.map(lambda x: x.k).collect())
    r.value("together", len(one | two))
    r.value("in both", len(one & two))
    r.rows("train", sorted(one), ordered=True, layout=True)
    """,
    """
    t = spark.table("facts").select("id")$spread.withColumn("u", F.expr("uuid()")).cache()
    first = {x.id: x.u for x in t.collect()}
    again = {x.id: x.u for x in t.rdd.collect()}
    r.value("one value", first == again)
    r.value("distinct", len(set(first.values())))
    ordered = t.orderBy("id")
    r.value("head", [x.u == first[x.id] for x in ordered.head(5)])
    """,
    """
    t = spark.table("facts").groupBy("k").count().withColumn("u", F.expr("uuid()")).persist()
    t.write.mode("overwrite").parquet(f"{out}/a")
    t.write.mode("overwrite").parquet(f"{out}/b")
    a = {(x.k, x.u) for x in spark.read.parquet(f"{out}/a").collect()}
    b = {(x.k, x.u) for x in spark.read.parquet(f"{out}/b").collect()}
    r.value("same keys", a == b)
    r.value("rows", len(a))
    """,
    """
    t = spark.table("facts").groupBy("k").count().withColumn("u", F.rand()).$checkpoint
    r.value("held", {(x.k, x.u) for x in t.collect()} == {(x.k, x.u) for x in t.collect()})
    r.value("rows", t.count())
    """,
    """
    t = spark.table("facts").select("id")$spread
    r.rows("seeded", t.sample(0.1, seed=$p).collect(), layout=True)
    r.rows("rand", t.select("id", F.rand($p).alias("x")).orderBy("id").limit(30).collect(), layout=True)
    """,
    """
    t = spark.range($p * 40).select("id", F.monotonically_increasing_id().alias("m"), F.spark_partition_id().alias("p"))
    r.rows("ids", t.collect(), layout=True)
    r.value("distinct", t.select("m").distinct().count())
    """,
    """
    t = spark.table("facts")$spread.withColumn("m", F.monotonically_increasing_id()).select("id", "m")
    other = t.groupBy("m").agg(F.max("id").alias("id2"))
    r.value("matches", t.join(other, "m").where("id = id2").count(), layout=True)
    """,
    """
    import random as rnd
    draw = F.udf(lambda: rnd.random(), "double").asNondeterministic()
    t = spark.table("dims").select("k", draw().alias("x")).cache()
    r.value("held", t.collect() == t.collect())
    r.value("distinct", t.select("x").distinct().count() > 50)
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.sum("v").alias("v"))
    numbers = [random.random() for _ in range(3)]
    r.value("python", numbers)
    r.value("sampled", len(spark.sparkContext.parallelize(range(100), 2).takeSample(False, 5, seed=$p)))
    r.value("rows", t.count())
    r.value("python after", random.random())
    """,
    """
    r.rows("python", spark.sparkContext.parallelize(range(300), 3).sample(False, 0.2).collect())
    r.value("state", random.random())
    """,
    """
    drawn = spark.table("facts").sampleBy("k", {7: 0.2, 3: 1.0}, seed=$p)
    r.value("key 3", drawn.where("k = 3").count())
    r.value("few of 7", drawn.where("k = 7").count() < 320)
    """,
    """
    t = spark.table("facts")
    r.value("limit", len(t.select("id")$spread.limit($p).collect()))
    r.value("limit count", t.groupBy("id").count().limit($p * 9).count())
    r.value("first", t.groupBy().agg(F.first("id").alias("x")).first().x is not None)
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.count("*").alias("c")).withColumn("u", F.expr("uuid()"))
    keyed = t.cache()
    keyed.count()
    r.value("two outputs", keyed.join(keyed.select("k", F.col("u").alias("w")), "k").where("u = w").count())
    keyed.unpersist()
    """,
    """
    shuffled = spark.sql("SELECT k, shuffle(sequence(1, 30)) AS a FROM dims")
    r.value("multiset", shuffled.select(F.array_sort("a").alias("a")).distinct().count())
    now = spark.table("facts").groupBy("k").count().withColumn("at", F.current_timestamp())
    r.value("one time", now.select("at").distinct().count())
    """,
)


def draw(random: Random) -> Case:
    spread = random.choice(["", "", ".repartition(3)", '.repartition(3, "id")', '.orderBy("id")', ".distinct()"])
    checkpoint = random.choice(
        ["localCheckpoint()", "checkpoint()", "localCheckpoint(eager=False)", "checkpoint(eager=False)", "cache()"]
    )
    template = random.choice(DRAWS)
    if ".checkpoint" in f".{checkpoint}":
        template = '\n    spark.sparkContext.setCheckpointDir(f"{out}/checkpoints")' + template
    return case("draw", template, spread=spread, checkpoint=checkpoint, p=random.randrange(3, 30))


FAMILIES = {"draw": draw}
