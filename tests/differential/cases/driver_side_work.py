"""What a script does around its queries: RDDs, threads, accumulators, observations, listeners, stopped sessions."""

from __future__ import annotations

from random import Random

from tests.differential.case import STOPPING, Case
from tests.differential.cases.text import case

RDDS = (
    """
    words = spark.sparkContext.parallelize(range(500), 3).map(lambda x: (x % $p, x))
    r.rows("reduced", words.reduceByKey(lambda a, b: a + b).collect())
    r.rows("grouped", words.groupByKey().mapValues(sorted).mapValues(len).collect())
    r.rows("sorted", words.sortBy(lambda x: (-x[0], x[1])).take(20), ordered=True)
    r.value("counts", dict(words.countByKey()))
    """,
    """
    rows = spark.table("facts").groupBy("k").agg(F.max("v").alias("v")).rdd
    r.rows("mapped", rows.map(lambda x: (x.k, x.v)).filter(lambda x: x[1] > $p).collect())
    r.value("aggregate", rows.aggregate(0, lambda a, x: a + x.v, lambda a, b: a + b))
    r.value("max", rows.map(lambda x: x.v).max())
    left = rows.map(lambda x: (x.k, x.v))
    r.rows("join", left.join(spark.table("dims").rdd.map(lambda x: (x.k, x.name))).collect())
    """,
    """
    pairs = spark.sparkContext.parallelize([(n % 7, n) for n in range(200)], 4).cache()
    r.value("count", pairs.count())
    grouped = pairs.cogroup(pairs.mapValues(lambda x: x + 1))
    r.rows("cogroup", grouped.mapValues(lambda x: [len(y) for y in x]).collect())
    r.rows("zip", pairs.zipWithIndex().take(5), ordered=True)
    frame = spark.createDataFrame(pairs, "a int, b int").groupBy("a").agg(F.sum("b").alias("s"))
    r.frame("frame", frame)
    pairs.unpersist()
    """,
    """
    seen, odd = spark.sparkContext.accumulator(0), spark.sparkContext.accumulator(0)
    def note(x):
        seen.add(1)
        return x % 2
    t = spark.table("dims").repartition(2, "cat").select(F.udf(note, "int")("k").alias("o")).groupBy("o").count()
    r.frame("rows", t)
    r.value("seen", seen.value)
    t.foreach(lambda row: odd.add(row["count"]))
    r.value("counted", odd.value)
    """,
    """
    spark.table("facts").groupBy("k").count().rdd.map(lambda x: f"{x.k},{x['count']}").coalesce(1).saveAsTextFile(
        f"{out}/text") if not os.path.exists(f"{out}/text/_SUCCESS") else None
    r.written("text", f"{out}/text", fixed=True)
    """,
    """
    rdd = spark.sparkContext.parallelize(range(40), 2).barrier().mapPartitions(lambda rows: [sum(rows)])
    r.rows("barrier", rdd.collect())
    t = spark.table("facts").groupBy("k").count().coalesce(1)
    r.rows("frame", t.mapInPandas(lambda it: it, t.schema, barrier=True).collect())
    """,
)
OBSERVED = (
    """
    watch = Observation("watch")
    t = spark.table("facts").observe(watch, F.count(F.lit(1)).alias("rows"), F.max("v").alias("top"))
    r.frame("rows", t.groupBy("k").agg(F.sum("v").alias("v")))
    r.value("observed", watch.get)
    """,
    """
    watch = Observation()
    t = spark.table("facts").groupBy("k").agg(F.sum("v").alias("v")).observe(watch, F.sum("v").alias("s"))
    t.write.mode("overwrite").parquet(f"{out}/w")
    r.value("observed", watch.get, fresh=True)
    r.written("w", f"{out}/w")
    """,
)
THREADS = (
    """
    def work(n):
        found[n] = spark.table("facts").where(f"k % 4 = {n}").groupBy("k").agg(F.sum("v").alias("v")).collect()
    found = {}
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in sorted(found):
        r.rows(f"thread {n}", found[n])
    """,
    """
    from concurrent.futures import ThreadPoolExecutor
    shared = spark.table("facts").join(spark.table("dims"), "k").groupBy("cat", "g").agg(F.sum("v").alias("v"))
    def write(n):
        shared.where(f"v % 3 = {n}").write.mode("overwrite").parquet(f"{out}/{n}")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    for n in range(3):
        r.written(str(n), f"{out}/{n}")
    """,
    """
    from pyspark import InheritableThread
    def work():
        spark.sparkContext.setJobGroup("other", "in a thread")
        found.append(spark.table("events").groupBy("kind").count().collect())
        names.append(spark.sparkContext.getLocalProperty("spark.jobGroup.id"))
    found, names = [], []
    spark.sparkContext.setJobGroup("mine", "outside")
    thread = InheritableThread(target=work)
    thread.start()
    thread.join()
    r.rows("rows", found[0])
    r.value("groups", [*names, spark.sparkContext.getLocalProperty("spark.jobGroup.id")])
    """,
    """
    slow = F.udf(lambda x: __import__("time").sleep(20) or x, "int")
    def work():
        spark.sparkContext.setJobGroup("slow", "to be cancelled", True)
        r.error("cancelled", lambda: spark.range(2).repartition(2).select(slow("id")).collect() and None)
    from pyspark import InheritableThread
    thread = InheritableThread(target=work)
    thread.start()
    while thread.is_alive():  # between two jobs of a query nothing is there to be cancelled
        spark.sparkContext.cancelJobGroup("slow")
        thread.join(0.1)
    r.value("goes on", spark.table("facts").groupBy("k").count().count())
    """,
)
STOPS = (
    """
    from pyspark.sql import SparkSession
    r.frame("before", spark.table("facts").groupBy("k").agg(F.sum("v").alias("v")))
    spark.stop()
    spark = SparkSession.builder.appName("again").config("spark.sql.shuffle.partitions", "$q").getOrCreate()
    t = spark.read.parquet(f"{data}/facts")
    r.frame("after", t.groupBy("k").agg(F.sum("v").alias("v")))
    r.value("partitions", t.repartition(F.col("k")).rdd.getNumPartitions())
    """,
    """
    from pyspark.sql import SparkSession
    kept = spark.table("facts").groupBy("g").count().cache()
    kept.write.mode("overwrite").parquet(f"{out}/one")
    spark.stop()
    r.error("stopped", kept.count)
    spark = SparkSession.builder.getOrCreate()
    spark.read.parquet(f"{out}/one").groupBy().agg(F.sum("count").alias("s")).write.mode("overwrite").json(f"{out}/two")
    r.written("two", f"{out}/two")
    """,
    """
    from pyspark.sql import SparkSession
    t = spark.table("events").groupBy("k").agg(F.sum("amount").alias("a"))
    u = t.withColumn("u", F.expr("uuid()")).cache()
    r.value("held", u.collect() == u.collect())
    spark.stop()
    spark = SparkSession.builder.getOrCreate()
    v = spark.range($p).withColumn("u", F.expr("uuid()")).cache()
    r.value("held again", v.collect() == v.collect())
    r.value("rows", v.select("u").distinct().count())
    """,
)
STATISTICS = (
    """
    t = spark.table("facts")
    r.value("quantile", t.approxQuantile(["v", "k"], [0.1, 0.5, 0.9], 0.0))
    r.value("corr", round(t.corr("v", "k"), 9))
    r.value("cov", round(t.cov("v", "k"), 4))
    r.rows("crosstab", t.where("k < 9").crosstab("k", "b").collect())
    r.rows("describe", t.describe("v", "g").where("summary in ('count', 'min', 'max')").collect())
    r.rows("summary", t.summary("count", "min", "50%", "max").select("summary", "v", "s").collect())
    r.rows("frequent", t.stat.freqItems(["b"], 0.4).select(F.array_sort("b_freqItems")).collect())
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.sum("v").alias("v"), F.max("t").alias("t"))
    r.shown("explain", lambda: t.explain())
    r.shown("extended", lambda: t.explain("extended"))
    r.shown("schema", t.printSchema)
    r.value("columns", t.columns)
    r.value("same", t.sameSemantics(t.select("*")))
    r.value("files", len(t.inputFiles()))
    r.value("streaming", t.isStreaming)
    """,
    """
    t = spark.table("events").na.fill(0).na.drop()
    r.frame("replaced", t.replace(["buy"], ["sold"], "kind").groupBy("kind").count())
    r.frame("unpivot", spark.table("dims").unpivot("k", ["w"], "name", "value"))
    r.frame("melt", t.groupBy("kind").pivot("day", [dt.date(2021, 1, 2), dt.date(2021, 1, 3)]).agg(F.max("eid")))
    r.frame("pivot", t.groupBy("kind").pivot("k").count().select("kind", "3", "4"))
    r.frame("transposed", t.groupBy("kind").agg(F.max("eid").alias("m")).orderBy("kind").transpose())
    """,
    """
    rows = [Row(a=n, b=str(n % $p), c=Decimal(n) / 4, d=dt.date(2024, 1, 1 + n % 20), e=[n, None]) for n in range(60)]
    t = spark.createDataFrame(rows)
    r.frame("created", t)
    r.frame("grouped", t.groupBy("b").agg(F.sum("c").alias("c"), F.max("d").alias("d"), F.count("e").alias("e")))
    pandas = t.select("a", "b").toPandas()
    r.frame("from pandas", spark.createDataFrame(pandas).groupBy("b").agg(F.sum("a").alias("a")))
    r.frame("from arrow", spark.createDataFrame(t.toArrow()).groupBy("b").count())
    """,
    """
    from functools import reduce
    t = spark.table("events")
    for n in range($q):
        t = t.join(spark.table("dims").select("k", F.col("w").alias(f"w{n}")), "k", "left")
    r.frame("many joins", t.groupBy("kind").agg(F.sum("w0").alias("s")))
    many = reduce(lambda a, b: a.unionByName(b), [spark.table("dims").where(f"k % $q = {n}") for n in range($q)])
    r.frame("many unions", many.groupBy("cat").agg(F.sum("w").alias("w")))
    """,
    """
    stream = spark.readStream.schema(spark.table("facts").schema).parquet(f"{data}/facts")
    query = (stream.groupBy("k").agg(F.count("*").alias("c")).writeStream.format("memory").queryName("counted$p")
             .outputMode("complete").trigger(availableNow=True).start())
    query.awaitTermination()
    r.frame("streamed", spark.table("counted$p"))
    spark.catalog.dropTempView("counted$p")
    """,
)


def _maker(family: str, templates: tuple[str, ...], kind: str = "shared") -> object:
    def make(random: Random) -> Case:
        return case(family, random.choice(templates), kind, p=random.randrange(5, 60), q=random.randrange(2, 7))

    return make


FAMILIES = {
    "rdd": _maker("rdd", RDDS),
    "observed": _maker("observed", OBSERVED),
    "thread": _maker("thread", THREADS),
    "stop": _maker("stop", STOPS, STOPPING),
    "statistics": _maker("statistics", STATISTICS),
}
