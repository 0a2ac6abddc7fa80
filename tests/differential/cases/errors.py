"""Errors made on purpose, and work that Spark never does because a plan ends early."""

from __future__ import annotations

from random import Random

from tests.differential.case import Case
from tests.differential.cases.text import case

ERRORS = (
    """
    bad = F.udf(lambda x: 10 // (x - $p), "int")
    t = spark.table("facts").select("k").distinct().repartition(1).select("k", bad("k").alias("u"))
    r.error("collect", t.collect)
    r.error("count", t.count)
    """,
    """
    bad = F.udf(lambda x: 10 // (x - 99), "int")
    t = spark.table("dims").orderBy("k").coalesce(1).select("k", bad("k").alias("u"))
    r.error("limit", lambda: r.rows("five", t.limit(5).collect(), ordered=True))
    r.error("take", lambda: r.rows("two", t.take(2), ordered=True))
    rows = t.toLocalIterator()
    r.error("all", t.collect)
    """,
    """
    bad = F.udf(lambda x: 10 // (x - 2999), "int")
    t = spark.table("facts").repartitionByRange(4, "id").sortWithinPartitions("id").select("id", bad("id").alias("u"))
    def begun():
        rows = t.toLocalIterator()
        return [next(rows).id for _ in range(5)]
    r.error("iterator", lambda: r.value("begun", begun()))
    r.error("head", lambda: r.value("head", len(t.head(3))))
    r.error("isEmpty", lambda: r.value("empty", t.isEmpty()))
    r.error("full", t.collect)
    """,
    """
    r.error("overflow", lambda: spark.sql("SELECT cast(sum(v) * 1000000000 AS int) AS x FROM facts").collect())
    r.error("cast", lambda: spark.sql("SELECT max(cast(s AS int)) FROM facts WHERE id = 3").collect())
    r.error("divide", lambda: spark.sql("SELECT k, sum(v) / (count(*) - count(*)) FROM facts GROUP BY k").collect())
    r.error("element", lambda: spark.sql("SELECT element_at(arr, 9) FROM facts WHERE id < $p").collect())
    r.error("raise", lambda: spark.sql("SELECT raise_error('stop ' || max(k)) FROM dims").collect())
    r.error("assert", lambda: spark.table("dims").select(F.assert_true(F.col("w") < $p, "too heavy")).collect())
    """,
    """
    r.error("no column", lambda: spark.table("facts").select("missing"))
    r.error("no table", lambda: spark.table("missing"))
    r.error("no path", lambda: spark.read.parquet(f"{out}/missing"))
    r.error("syntax", lambda: spark.sql("SELEC 1"))
    r.error("type", lambda: spark.table("facts").select(F.col("arr") + 1).collect())
    r.error("group", lambda: spark.sql("SELECT g, v FROM facts GROUP BY g").collect())
    r.error("ambiguous", lambda: spark.table("facts").join(spark.table("dims"), F.expr("true")).select("k").collect())
    r.error("union", lambda: spark.table("facts").union(spark.table("dims")).collect())
    """,
    """
    import pandas as pd
    @F.pandas_udf("long")
    def bad(x: pd.Series) -> pd.Series:
        if (x > $p).any():
            raise KeyError("too large")
        return x
    t = spark.table("facts").groupBy("k").agg(F.count("*").alias("c"))
    r.error("pandas", t.coalesce(1).select(bad("k")).collect)
    r.error("wrong schema", t.coalesce(1).mapInPandas(lambda it: (x[["k"]] for x in it), "k int, c long").collect)
    r.error("apply", t.groupBy("k").applyInPandas(lambda g: g.iloc[$p], "k int, c long").coalesce(1).collect)
    """,
    """
    r.error("sub", lambda: spark.sql("SELECT (SELECT k FROM facts) AS x").collect())
    r.error("merge hint", lambda: r.frame("rows", spark.table("facts").hint("nothing").groupBy("k").count()))
    r.error("sample", lambda: spark.table("facts").sample(1.5))
    r.error("table", lambda: spark.table("facts").write.insertInto("missing"))
    r.error("mode", lambda: spark.table("dims").write.mode("other").parquet(f"{out}/x"))
    r.error("format", lambda: spark.table("dims").write.format("nothing").save(f"{out}/x"))
    """,
    """
    once = Path(out, "failed once")
    once.unlink(missing_ok=True)
    path = str(once)
    def fails_once(x):
        if not os.path.exists(path):
            Path(path).touch()
            raise RuntimeError("the first time")
        return x
    t = spark.table("dims").groupBy("cat").agg(F.sum("w").alias("w")).coalesce(1)
    t = t.select("cat", F.udf(fails_once, "long")("w").alias("u"))
    r.error("first", t.collect)
    r.frame("second", t)
    """,
)


def error(random: Random) -> Case:
    return case("error", random.choice(ERRORS), p=random.randrange(5, 40))


FAMILIES = {"error": error}
