"""Caches, checkpoints, views, and what changes between two actions: settings, files, the world outside."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.differential.case import Case
from tests.differential.cases.text import case

CACHES = (
    """
    t = spark.table("facts").groupBy("k").agg(F.sum("v").alias("v")).cache()
    r.frame("one", t)
    r.frame("two", t.where("v > $p"))
    r.value("cached", t.is_cached)
    t.unpersist()
    r.value("after", t.is_cached)
    r.value("count", t.count())
    """,
    """
    from pyspark import StorageLevel
    t = spark.table("events").join(spark.table("dims"), "k").persist(StorageLevel.$level)
    r.value("count", t.count())
    r.value("level", str(t.storageLevel))
    r.frame("kinds", t.groupBy("kind", "cat").agg(F.sum("amount").alias("a")))
    t.unpersist(blocking=True)
    """,
    """
    spark.sql("CACHE TABLE held AS SELECT k, count(*) AS c FROM facts WHERE id > $p GROUP BY k")
    r.frame("held", spark.table("held"))
    r.value("is cached", spark.catalog.isCached("held"))
    spark.sql("UNCACHE TABLE held")
    r.value("sum", spark.sql("SELECT sum(c) AS s FROM held").first().s)
    """,
    """
    t = spark.table("facts").repartition(3, "k").groupBy("k").agg(F.max("v").alias("m")).$checkpoint
    r.frame("rows", t)
    r.text("plan", t._jdf.queryExecution().analyzed().nodeName())
    r.value("above", t.where("m > $p").count())
    """,
    """
    t = spark.table("facts").select("id", "k").where("k < $p")
    t.createOrReplaceTempView("few")
    r.value("one", spark.sql("SELECT count(*) AS c FROM few").first().c)
    t.where("id % 2 = 0").createOrReplaceTempView("few")
    r.value("two", spark.sql("SELECT count(*) AS c FROM few").first().c)
    spark.catalog.dropTempView("few")
    r.error("gone", lambda: spark.table("few"))
    """,
    """
    spark.table("facts").groupBy("k").count().createOrReplaceGlobalTempView("everywhere")
    r.frame("global", spark.newSession().table("global_temp.everywhere"))
    spark.catalog.dropGlobalTempView("everywhere")
    """,
)
CHANGES = (
    """
    folder = f"{out}/input"
    fresh_folder(folder)
    Path(folder, "a.csv").write_text("k,v\\n1,10\\n2,20\\n")
    r.frame("old", spark.read.option("header", True).csv(folder).groupBy("k").count())
    Path(folder, "a.csv").write_text("k,v\\n1,10\\n3,3$p\\n")
    r.frame("new", spark.read.option("header", True).csv(folder).groupBy("k").count())
    r.frame("values", spark.read.option("header", True).csv(folder))
    """,
    """
    folder = f"{out}/input"
    fresh_folder(folder)
    for number in range(3):
        Path(folder, f"{number}.json").write_text('{"k": %d, "v": $p}\\n' % number)
        r.rows(f"after {number}", spark.read.json(folder).groupBy("v").agg(F.sum("k").alias("s")).collect())
    """,
    """
    folder = f"{out}/input"
    fresh_folder(folder)
    for value in (1, 2):
        shutil.rmtree(folder)
        spark.range(50).withColumn("v", F.lit(value + $p)).write.mode("overwrite").parquet(folder)
        r.rows(f"round {value}", spark.read.parquet(folder).groupBy("v").count().collect(), fresh=True)
    r.rows("last", spark.read.parquet(folder).groupBy("v").count().collect())
    """,
    """
    flag = Path(out, "ready")
    flag.unlink(missing_ok=True)
    path = str(flag)
    ask = F.udf(lambda x: os.path.exists(path), "boolean").asNondeterministic()
    rounds = 0
    while not spark.table("dims").groupBy("cat").count().select(ask("cat").alias("x")).agg(F.bool_and("x")).first()[0]:
        rounds += 1
        if rounds == 3:
            flag.touch()
        if rounds > 6:
            break
    r.value("rounds", rounds)
    """,
    """
    flag = Path(out, "number")
    flag.write_text("$p")
    path = str(flag)
    ask = F.udf(lambda x: int(Path(path).read_text()) + x, "int")
    t = spark.table("dims").repartition(2, "cat").select(ask("k").alias("x")).agg(F.sum("x").alias("s"))
    r.rows("one", t.collect())
    flag.write_text("1000")
    r.rows("same frame", t.collect(), fresh=True)
    again = spark.table("dims").repartition(2, "cat").select(ask("k").alias("x")).agg(F.sum("x").alias("s"))
    r.rows("new frame", again.collect(), fresh=True)
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.sum("v").alias("v"))
    for value in ("true", "false"):
        spark.conf.set("spark.sql.adaptive.enabled", value)
        r.frame(f"adaptive {value}", t.where("v > $p"))
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "$broadcast")
    r.frame("joined", t.join(spark.table("dims"), "k"))
    spark.conf.set("spark.sql.shuffle.partitions", "$q")
    r.value("partitions", spark.table("facts").repartition(F.col("k")).rdd.getNumPartitions())
    """,
    """
    q = "SELECT k, cast(max(s) AS int) AS i, sum(v) / 0 AS z FROM facts GROUP BY k"
    for value in ("$ansi", "$other"):
        spark.conf.set("spark.sql.ansi.enabled", value)
        r.error(f"ansi {value}", lambda: spark.sql(q).collect())
        r.error(f"try {value}", lambda: r.frame(f"try rows {value}", spark.sql(q.replace("cast", "try_cast").replace(
            "sum(v) / 0", "try_divide(sum(v), 0)"))))
    """,
    """
    expression = F.col("s").cast("int")
    spark.conf.set("spark.sql.ansi.enabled", "$ansi")
    t = spark.table("facts").groupBy("s").count().select(expression.alias("i"))
    spark.conf.set("spark.sql.ansi.enabled", "$other")
    r.error("made before", lambda: r.rows("rows", t.distinct().collect()))
    """,
    """
    for zone in ("UTC", "$zone", "Asia/Tokyo"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        r.frame(zone, spark.table("facts").groupBy(F.hour("ts").alias("h")).count())
        r.rows(f"{zone} days", spark.sql("SELECT to_date(ts) AS d, count(*) FROM facts GROUP BY 1").collect())
    """,
    """
    spark.conf.set("spark.sql.caseSensitive", "true")
    t = spark.table("dims").select("k", F.col("w").alias("K"))
    r.frame("rows", t.groupBy("K").agg(F.max("k").alias("m")))
    spark.conf.unset("spark.sql.caseSensitive")
    r.error("ambiguous", lambda: t.select("k").collect())
    """,
    """
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", "$q")
    other.conf.set("spark.sql.ansi.enabled", "$other")
    mine, theirs = spark.read.parquet(f"{data}/facts"), other.read.parquet(f"{data}/facts")
    for name, t in (("mine", mine), ("theirs", theirs)):
        r.frame(name, t.groupBy("k").agg(F.count("*").alias("c")).where("k < $p"))
        r.value(f"{name} partitions", t.repartition(F.col("k")).rdd.getNumPartitions())
    """,
    """
    spark.sparkContext.setJobGroup("group $p", "a description", True)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    r.value("count", spark.table("facts").groupBy("k").count().count())
    r.value("group", spark.sparkContext.getLocalProperty("spark.jobGroup.id"))
    spark.sparkContext.setJobDescription("other")
    r.value("again", spark.table("events").groupBy("k").count().count())
    spark.addTag("tag")
    r.value("tags", sorted(spark.getTags()))
    spark.clearTags()
    """,
)


def _values(random: Random) -> dict[str, Any]:
    ansi = random.random() < 0.5
    return {
        "p": random.randrange(10, 60),
        "q": random.randrange(2, 9),
        "level": random.choice(["MEMORY_ONLY", "MEMORY_AND_DISK", "DISK_ONLY"]),
        "checkpoint": random.choice(["localCheckpoint()", "localCheckpoint(eager=False)", "localCheckpoint(True)"]),
        "broadcast": random.choice(["-1", "10000", "1000000"]),
        "ansi": str(ansi).lower(),
        "other": str(not ansi).lower(),
        "zone": random.choice(["America/New_York", "Europe/Berlin", "Asia/Kolkata"]),
    }


def cache(random: Random) -> Case:
    return case("cache", random.choice(CACHES), **_values(random))


def change(random: Random) -> Case:
    return case("change", random.choice(CHANGES), **_values(random))


FAMILIES = {"cache": cache, "change": change}
