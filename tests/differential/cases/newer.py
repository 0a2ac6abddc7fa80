"""What Spark 4 has brought, and what scripts ask of a session besides rows."""

from __future__ import annotations

from random import Random

from tests.differential.case import SHARED, Case
from tests.differential.cases.text import case

NEWER = (
    """
    spark.sql("DECLARE OR REPLACE VARIABLE low INT DEFAULT $p")
    chosen = spark.sql("SELECT g, count(*) AS c FROM facts WHERE v > low GROUP BY g")
    r.frame("before", chosen)
    spark.sql("SET VAR low = $q * 10")
    r.frame("after", spark.sql("SELECT g, count(*) AS c FROM facts WHERE v > low GROUP BY g"))
    r.frame("again", chosen)
    r.moment("variable")
    spark.sql("SET VAR low = (SELECT max(w) FROM dims)")
    r.frame("asked", spark.sql("SELECT k, sum(v) AS s FROM facts WHERE v > low GROUP BY k"))
    spark.sql("DROP TEMPORARY VARIABLE low")
    """,
    """
    query = "SELECT k, count(*) AS c FROM facts WHERE v > ? AND g = ? GROUP BY k"
    r.frame("one", spark.sql(f"EXECUTE IMMEDIATE '{query}' USING $p, 'g1'"))
    r.moment("between")
    r.frame("two", spark.sql(f"EXECUTE IMMEDIATE '{query}' USING $q, 'g2'"))
    named = "SELECT cat, sum(w) AS s FROM dims WHERE w > :low GROUP BY cat"
    r.frame("named", spark.sql(named, args={"low": $p}))
    r.frame("other", spark.sql(named, args={"low": $q}))
    r.frame("frame", spark.sql("SELECT g, max(v) AS m FROM {t} GROUP BY g", t=spark.table("facts").where("n < $q")))
    """,
    """
    t = spark.table("logs").select("lid", F.parse_json(F.to_json("props")).alias("v"))
    hosts = t.groupBy(F.variant_get("v", "$$.host", "string").alias("h")).agg(F.count("*").alias("c"))
    r.frame("hosts", hosts)
    r.moment("variant")
    codes = t.select(F.try_variant_get("v", "$$.code", "int").alias("c")).groupBy((F.col("c") % $q).alias("x")).count()
    codes.write.parquet(out + "/codes")
    r.written("codes", out + "/codes")
    r.frame("schema", t.agg(F.schema_of_variant_agg("v").alias("s")))
    """,
    """
    dims, facts = spark.table("dims"), spark.table("facts")
    top = dims.where(F.col("w") > dims.agg(F.avg("w")).scalar())
    r.frame("scalar", top.groupBy("cat").count())
    r.moment("subqueries")
    sold = dims.alias("d").where(
        spark.table("events").alias("e").where((F.col("e.k") == F.col("d.k").outer()) & (F.col("amount") > $p)).exists()
    )
    r.frame("exists", sold.groupBy("cat").agg(F.max("name").alias("n")))
    each = facts.where("id < $p0").alias("f").lateralJoin(
        dims.alias("d").where(F.col("d.k") == F.col("f.k").outer()).select("name", "w")
    )
    r.frame("lateral", each.groupBy("name").agg(F.count("*").alias("c"), F.max("w").alias("w")))
    """,
    """
    t = spark.table("facts")
    sets = t.groupingSets([("g", "b"), ("g",), ()], "g", "b").agg(F.sum("v").alias("s"), F.grouping_id().alias("i"))
    r.frame("sets", sets)
    r.moment("sets")
    wide = t.where("g is not null").groupBy("b").pivot("g").agg(F.count("*"))
    r.frame("wide", wide)
    wide.unpivot("b", None, "g", "c").write.mode("overwrite").parquet(out + "/long")
    r.written("long", out + "/long")
    r.frame("transposed", t.groupBy("b").agg(F.count("*").alias("c")).transpose("b"))
    """,
    """
    r.frame("numbers", spark.sql(
        "WITH RECURSIVE n(i, x) AS (SELECT 1, 1 UNION ALL SELECT i + 1, x * 2 FROM n WHERE i < $q)"
        " SELECT n.i, count(f.id) AS c FROM n JOIN facts f ON f.k = n.i GROUP BY n.i"
    ))
    r.moment("recursive")
    r.frame("tree", spark.sql(
        "WITH RECURSIVE t(k, depth) AS (SELECT k, 0 FROM dims WHERE k < 3 UNION ALL"
        " SELECT d.k, t.depth + 1 FROM t JOIN dims d ON d.k = t.k * 3 + 1 WHERE t.depth < 4)"
        " SELECT depth, count(*) AS c, max(k) AS m FROM t GROUP BY depth"
    ))
    """,
    """
    t = spark.sql("SELECT id, s COLLATE UTF8_LCASE AS s, upper(s) AS u, k FROM facts WHERE k < $p0")
    r.frame("same", t.groupBy("s").agg(F.count("*").alias("c")))
    r.moment("collated")
    other = t.select(F.col("u").alias("s2"), F.col("id").alias("id2"))
    r.frame("joined", t.join(other, F.col("s") == F.col("s2")).groupBy("k").count())
    """,
    """
    t = spark.table("facts").withColumns({"x": F.col("v") % $p, "y": F.lit("$q")})
    t.createOrReplaceGlobalTempView("shared_$p")
    other = spark.newSession()
    r.frame("global", other.sql("SELECT x, count(*) AS c FROM global_temp.shared_$p GROUP BY x"))
    other.conf.set("spark.sql.shuffle.partitions", "3")
    r.moment("sessions")
    r.value("parts", other.table("global_temp.shared_$p").repartition("x").rdd.getNumPartitions(), layout=True)
    r.frame("again", spark.sql("SELECT x, max(y) AS m FROM global_temp.shared_$p GROUP BY x"))
    spark.catalog.dropGlobalTempView("shared_$p")
    """,
    """
    e = spark.table("events").withColumn("at", F.expr("timestamp(day) + make_interval(0, 0, 0, 0, eid % 24)"))
    r.frame("sessions", e.groupBy(F.session_window("at", "$q hours"), "kind").agg(F.sum("amount").alias("a")))
    r.moment("windows")
    w = e.withWatermark("at", "1 day").groupBy(F.window("at", "$q days", "1 day"), "kind").count()
    w.select("window.start", "kind", "count").write.partitionBy("kind").parquet(out + "/windows")
    r.written("windows", out + "/windows")
    """,
    """
    guessed = spark.read.option("header", True).option("inferSchema", True).csv(f"{data}/events")
    r.value("types", guessed.dtypes)
    r.frame("summary", guessed.groupBy("kind").agg(F.max("amount").alias("m"), F.min("day").alias("d")))
    r.moment("guessed")
    sampled = spark.read.option("samplingRatio", 1.0).json(f"{data}/logs")
    r.frame("levels", sampled.groupBy("level").agg(F.sum("props.code").alias("c")))
    lines = spark.sparkContext.parallelize(['{"a": 1, "b": "x"}', '{"a": $p, "c": [1, 2]}'], 2)
    r.frame("lines", spark.read.json(lines))
    r.frame("text", spark.read.text(f"{data}/logs").groupBy(F.length("value").alias("n")).count())
    r.value("files", sorted(f.rsplit("/", 1)[-1] for f in guessed.inputFiles()))
    """,
    """
    t = spark.table("facts").groupBy("g").agg(F.sum("v").alias("s"))
    same = spark.table("facts").groupBy("g").agg(F.sum("v").alias("s"))
    r.value("same", [t.sameSemantics(same), t.semanticHash() == same.semanticHash(), t.isLocal(), t.isEmpty()])
    r.value("tail", len(t.tail($q)))
    r.rows("offset", t.orderBy("g").offset(2).limit($q).collect(), ordered=True)
    r.moment("asked")
    r.value("arrow", t.toArrow().num_rows)
    r.value("local", sorted(str(x.g) for x in t.toLocalIterator(prefetchPartitions=True)))
    r.value("batches", sum(len(x) for x in t.toPandas()["g"].fillna("")))
    """,
    """
    rdd = spark.table("facts").select("k", "v").rdd.map(tuple)
    r.rows("by key", rdd.aggregateByKey(0, lambda a, v: a + v, lambda a, b: a + b).collect())
    r.value("tree", rdd.map(lambda x: x[1]).treeAggregate(0, lambda a, v: a + v, lambda a, b: a + b, depth=3))
    r.moment("rdds")
    combined = rdd.combineByKey(lambda v: [v], lambda a, v: a + [v], lambda a, b: a + b, $q).mapValues(len)
    r.frame("frame", combined.toDF(["k", "c"]).join(spark.table("dims"), "k").groupBy("cat").agg(F.sum("c").alias("c")))
    rdd.partitionBy($q, lambda k: k).mapPartitions(lambda part: [sum(v for _, v in part)]).saveAsTextFile(out + "/text")
    r.value("text", sorted(line for file in Path(out + "/text").glob("part-*") for line in file.read_text().split()))
    """,
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Numbers(DataSource):
        @classmethod
        def name(cls):
            return "numbers_$p"

        def schema(self):
            return "n int, m int"

        def reader(self, schema):
            return Reader(int(self.options.get("rows", 50)))

    class Reader(DataSourceReader):
        def __init__(self, rows):
            self.rows = rows

        def partitions(self):
            return [InputPartition(i) for i in range(3)]

        def read(self, partition):
            for n in range(self.rows):
                yield n * 3 + partition.value, n % $q

    spark.dataSource.register(Numbers)
    t = spark.read.format("numbers_$p").option("rows", "40").load()
    r.frame("read", t.groupBy("m").agg(F.sum("n").alias("s")))
    r.moment("source")
    r.frame("joined", t.join(spark.table("dims"), t.n == F.col("k")).groupBy("cat").agg(F.count("*").alias("c")))
    t.repartition("m").write.parquet(out + "/numbers")
    r.written("numbers", out + "/numbers")
    """,
    """
    from pyspark.sql.functions import udtf

    @udtf(returnType="g string, total bigint")
    class Totals:
        def __init__(self):
            self.g, self.total = None, 0

        def eval(self, row: Row):
            self.g, self.total = row["g"], self.total + row["v"] % $p

        def terminate(self):
            yield self.g, self.total

    spark.udtf.register("totals_$p", Totals)
    r.frame("totals", spark.sql("SELECT * FROM totals_$p(TABLE(SELECT g, v FROM facts) PARTITION BY g)"))
    r.moment("function")
    ordered = spark.sql("SELECT * FROM totals_$p(TABLE(SELECT g, v FROM facts) PARTITION BY g ORDER BY v, g)")
    r.frame("again", ordered.where("total > $q"))
    """,
    """
    found = spark.sql(
        "BEGIN DECLARE x INT DEFAULT 0; DECLARE n INT DEFAULT 0;"
        " WHILE x < $q DO SET n = n + (SELECT count(*) FROM facts WHERE k = x); SET x = x + 1; END WHILE;"
        " SELECT x, n; END"
    )
    r.frame("script", found)
    """,
    """
    today = spark.sql("SELECT current_date() = to_date(now()) AS same, count(*) AS c FROM facts GROUP BY 1")
    r.frame("today", today)
    t = spark.table("facts").withColumn("age", F.datediff(F.current_date(), F.col("t")))
    r.value("older", t.groupBy((F.col("age") > 0).alias("x")).count().collect()[0]["count"])
    r.moment("clock")
    r.frame("called", t.groupBy(F.call_function("mod", F.col("id"), F.lit($q)).alias("m")).agg(F.max("v").alias("v")))
    """,
    """
    spark.addTag("mine_$p")
    t = spark.table("facts").groupBy("k").agg(F.sum("v").alias("s"))
    r.frame("tagged", t)
    r.value("tags", sorted(spark.getTags()))
    r.moment("tags")
    r.value("interrupted", len(spark.interruptTag("nobody_$p")))
    r.frame("after", t.where(F.col("s") > $q))
    spark.clearTags()
    spark.sparkContext.setJobGroup("group_$p", "what it is")
    r.value("groups", spark.sparkContext.getLocalProperty("spark.jobGroup.id"))
    r.value("count", t.count())
    """,
    """
    pdf = spark.table("events").select("kind", "k", F.col("amount").cast("double").alias("a")).toPandas()
    back = spark.createDataFrame(pdf.sort_values(["kind", "k", "a"]).head($p0))
    r.frame("back", back.groupBy("kind").agg(F.count("*").alias("c"), F.round(F.sum("a"), 4).alias("s")))
    r.moment("frames")
    rows = spark.createDataFrame([Row(k=n % 9, x=[n, n + 1], m={"a": n}) for n in range($p0)])
    r.frame("rows", rows.join(spark.table("dims"), "k").groupBy("cat").agg(F.sum(F.element_at("x", 2)).alias("s")))
    typed = spark.createDataFrame([(1, None, Decimal("1.50")), (2, "b", None)], "a int, b string, c decimal(5,2)")
    r.frame("typed", typed.unionByName(typed.withColumn("d", F.lit($q)), allowMissingColumns=True).groupBy("a").count())
    """,
)


def newer(random: Random) -> Case:
    p = random.randrange(11, 60)
    return case("newer", random.choice(NEWER), SHARED, p=p, p0=p * 3, q=random.randrange(2, 9))


FAMILIES = {"newer": newer}
