"""Every kind of write; most twice, since what a second write meets is where modes differ."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.differential.case import TABLES, Case
from tests.differential.cases.text import case

WRITES = (
    """
    t = spark.table("facts").groupBy("k", "g").agg(F.sum("v").alias("v"))$spread
    t.write.mode("$mode").$format(f"{out}/w")
    r.written("w", f"{out}/w", fixed=$fixed)
    """,
    """
    t = spark.table("events").groupBy("k", "kind").agg(F.sum("amount").alias("a"))$spread
    t.write.partitionBy("kind").mode("overwrite").$format(f"{out}/w")
    r.written("w", f"{out}/w", fixed=$fixed)
    """,
    """
    t = spark.table("facts").orderBy("v", "id").select("id", "v")
    t.write.mode("overwrite").option("maxRecordsPerFile", 400).$format(f"{out}/sorted")
    r.written("sorted", f"{out}/sorted", ordered=True)
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.max("v").alias("v"))
    t.write.mode("overwrite").parquet(f"{out}/w")
    t.where("v > 0").write.mode("append").parquet(f"{out}/w")
    r.written("w", f"{out}/w")
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.max("v").alias("v"))
    t.write.mode("error").parquet(f"{out}/once")
    r.error("twice", lambda: t.write.mode("error").parquet(f"{out}/once"))
    r.error("default", lambda: t.write.parquet(f"{out}/once"))
    r.written("once", f"{out}/once")
    """,
    """
    def never(x):
        raise ValueError("the write is not needed")
    t = spark.table("facts").groupBy("k").count()
    t.write.mode("overwrite").parquet(f"{out}/w")
    u = t.withColumn("u", F.udf(never, "int")("k"))
    r.error("ignored", lambda: u.write.mode("ignore").parquet(f"{out}/w"))
    r.written("w", f"{out}/w")
    """,
    """
    t = spark.table("facts").where("k < $p").select("id", "k")
    t.write.mode("overwrite").parquet(f"{out}/w")
    again = spark.read.parquet(f"{out}/w")
    over = again.where("id > 5").write.mode("overwrite")
    r.error("overwrite what is read", lambda: over.parquet(f"{out}/w"), fresh=True)
    r.written("w", f"{out}/w", fresh=True)
    """,
    """
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "$overwrite")
    t = spark.table("events").select("eid", "k", "kind")
    t.write.partitionBy("kind").mode("overwrite").parquet(f"{out}/p")
    few = t.where("kind in ('buy', 'view')").groupBy("kind").agg(F.max("eid").alias("eid"), F.min("k").alias("k"))
    few.select("eid", "k", "kind").write.partitionBy("kind").mode("overwrite").parquet(f"{out}/p")
    r.written("p", f"{out}/p")
    """,
    """
    first = spark.table("facts").groupBy("k").agg(F.sum("d").alias("d"))
    first.write.mode("overwrite").parquet(f"{out}/stage1")
    second = spark.read.parquet(f"{out}/stage1").join(spark.table("dims"), "k")
    second = second.groupBy("cat").agg(F.sum("d").alias("d"))
    second.coalesce(1).write.mode("overwrite").option("header", True).csv(f"{out}/stage2")
    r.written("stage1", f"{out}/stage1")
    r.written("stage2", f"{out}/stage2", fixed=True)
    """,
    """
    t = spark.table("facts").select("id", "s")
    t.select("s").distinct().coalesce(1).write.mode("overwrite").text(f"{out}/lines")
    r.written("lines", f"{out}/lines", fixed=True)
    t.repartitionByRange(3, "id").sortWithinPartitions("id").write.mode("overwrite").parquet(f"{out}/range")
    r.written("range", f"{out}/range", ordered=True, fixed=True, layout=True)
    """,
    """
    spark.sql(f"INSERT OVERWRITE DIRECTORY '{out}/d' USING $format SELECT k, count(*) AS c FROM facts GROUP BY k")
    r.written("d", f"{out}/d")
    """,
    """
    base = spark.table("facts").join(spark.table("dims"), "k").groupBy("cat", "g").agg(F.sum("v").alias("v"))
    base.groupBy("cat").agg(F.sum("v").alias("v")).write.mode("overwrite").parquet(f"{out}/a")
    base.groupBy("g").agg(F.max("v").alias("v")).write.mode("overwrite").json(f"{out}/b")
    base.orderBy("cat", "g").limit($p).write.mode("overwrite").orc(f"{out}/c")
    for name in "abc":
        r.written(name, f"{out}/{name}", ordered=name == "c")
    """,
    """
    bad = F.udf(lambda x: 1 // (x - 11), "int")
    t = spark.table("facts").groupBy("k").count().withColumn("u", bad("k"))
    r.error("fails", lambda: t.write.mode("overwrite").parquet(f"{out}/w"))
    r.value("nothing", os.path.exists(f"{out}/w/_SUCCESS"))
    t.where("k != 11").select("k").write.mode("overwrite").parquet(f"{out}/w")
    r.written("w", f"{out}/w")
    """,
    """
    spark.range(0).write.mode("overwrite").parquet(f"{out}/empty")
    r.written("empty", f"{out}/empty")
    spark.table("facts").where("k = -5").groupBy("k").count().write.mode("overwrite").$format(f"{out}/none")
    r.written("none", f"{out}/none")
    """,
    """
    t = spark.table("facts").select("id", F.col("k").alias("a"), "st", "arr", "m").where("id < $p")
    t.repartition(2, "a").write.mode("overwrite").parquet(f"{out}/nested")
    r.written("nested", f"{out}/nested", fixed=True)
    r.frame("read", spark.read.parquet(f"{out}/nested").select("id", "st.b", F.size("arr").alias("n")))
    """,
)
ON_TABLES = (
    """
    t = spark.table("facts").groupBy("k", "g").agg(F.sum("v").alias("v"))
    t.write.mode("overwrite").saveAsTable("$name")
    r.frame("table", spark.table("$name"))
    """,
    """
    t = spark.table("facts").select("id", "k", "g").where("g is not null")
    t.write.bucketBy(3, "k").sortBy("id").mode("overwrite").saveAsTable("$name")
    r.frame("joined", spark.table("$name").join(spark.table("dims"), "k").groupBy("cat").count())
    r.value("buckets", [x.data_type for x in spark.sql("DESCRIBE EXTENDED $name").collect() if "ucket" in x.col_name])
    """,
    """
    spark.sql("CREATE TABLE IF NOT EXISTS $name (k int, c long, kind string) USING parquet PARTITIONED BY (kind)")
    spark.sql("INSERT OVERWRITE $name SELECT k, count(*), kind FROM events GROUP BY k, kind")
    r.frame("table", spark.table("$name"))
    r.rows("partitions", spark.sql("SHOW PARTITIONS $name").collect())
    """,
    """
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "$overwrite")
    spark.sql("CREATE TABLE IF NOT EXISTS $name (k int, c long, kind string) USING parquet PARTITIONED BY (kind)")
    spark.sql("INSERT OVERWRITE $name SELECT k, count(*), kind FROM events GROUP BY k, kind")
    spark.sql("INSERT OVERWRITE $name PARTITION (kind = 'buy') SELECT k, 0 FROM dims WHERE k < $p")
    spark.sql("INSERT OVERWRITE $name SELECT k, 1, 'click' FROM dims WHERE k >= $p")
    r.frame("table", spark.table("$name"))
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.count("*").alias("c"))
    t.write.mode("overwrite").saveAsTable("$name")
    t.where("k > $p").write.insertInto("$name")
    r.frame("table", spark.table("$name"))
    """,
    """
    t = spark.table("facts").groupBy("k").agg(F.count("*").alias("c"))
    t.write.mode("overwrite").option("path", f"{out}/t").saveAsTable("$name")
    r.written("files", f"{out}/t")
    r.frame("table", spark.sql("SELECT sum(c) AS s, max(k) AS m FROM $name"))
    """,
    """
    spark.sql(f"CREATE TABLE IF NOT EXISTS $name USING $format AS SELECT k, sum(v) AS v FROM facts GROUP BY k")
    r.error("again", lambda: spark.sql("CREATE TABLE $name USING parquet AS SELECT 1 AS x"))
    r.frame("table", spark.table("$name"))
    """,
    """
    spark.sql("CREATE TABLE IF NOT EXISTS $name (k int, v long) USING parquet")
    spark.sql("INSERT OVERWRITE $name SELECT k, sum(v) FROM facts GROUP BY k")
    r.error("itself", lambda: spark.sql("INSERT OVERWRITE $name SELECT k, v + 1 FROM $name"))
    r.value("rows", spark.table("$name").count())
    """,
    """
    t = spark.table("dims").groupBy("cat").agg(F.sum("w").alias("w"))
    t.writeTo("$name").using("parquet").createOrReplace() if False else t.write.mode("overwrite").saveAsTable("$name")
    r.error("exists", lambda: t.write.saveAsTable("$name"))
    t.write.mode("ignore").saveAsTable("$name")
    r.frame("table", spark.table("$name"))
    """,
)


def _values(random: Random) -> dict[str, Any]:
    spread = random.choice(["", "", ".coalesce(1)", ".repartition(3)", '.repartition(2, "k")'])
    return {
        "p": random.randrange(10, 60),
        "spread": spread,
        "fixed": bool(spread),
        "mode": random.choice(["overwrite", "append", "error", "ignore"]),
        "format": random.choice(["parquet", "parquet", "json", "csv", "orc"]),
        "overwrite": random.choice(["static", "dynamic"]),
        "name": f"t{random.randrange(10**9)}",
    }


def write(random: Random) -> Case:
    return case("write", random.choice(WRITES), **_values(random))


def table(random: Random) -> Case:
    return case("table", random.choice(ON_TABLES), TABLES, **_values(random))


FAMILIES = {"write": write, "table": table}
