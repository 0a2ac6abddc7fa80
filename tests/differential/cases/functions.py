"""Python functions of every kind in a plan."""

from __future__ import annotations

from random import Random

from tests.differential.case import Case
from tests.differential.cases.text import case

FUNCTIONS = (
    """
    @F.udf("long")
    def f(x):
        return x * $p
    r.frame("rows", spark.table("facts").groupBy("k").agg(F.sum("v").alias("v")).select("k", f("v").alias("u")))
    """,
    """
    f = F.udf(lambda x, y: f"{x}:{y}", "string", useArrow=True)
    r.frame("rows", spark.table("facts").where("id % $p = 0").repartition(3, "k").select("id", f("k", "g").alias("u")))
    """,
    """
    import pandas as pd
    @F.pandas_udf("long")
    def f(x: pd.Series, y: pd.Series) -> pd.Series:
        return x * 3 + y + $q
    r.frame("rows", spark.table("facts").groupBy("k").agg(F.max("id").alias("i")).select("k", f("k", "i").alias("u")))
    """,
    """
    import pandas as pd
    from collections.abc import Iterator
    @F.pandas_udf("long")
    def f(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for batch in batches:
            yield batch + $p
    r.frame("rows", spark.table("facts").orderBy("id").select("id", f("v").alias("u")), ordered=True)
    """,
    """
    import pandas as pd
    @F.pandas_udf("long")
    def f(x: pd.Series) -> int:
        return int(x.max() - x.min() + $p)
    r.frame("rows", spark.table("facts").groupBy("g").agg(f("v").alias("u")))
    r.frame("window", spark.table("events").select("eid", f("k").over(Window.partitionBy("kind")).alias("u")))
    """,
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    @F.arrow_udf("long")
    def f(x: pa.Array) -> pa.Array:
        return pc.add(x, $p)
    r.frame("rows", spark.table("facts").groupBy("k").agg(F.sum("v").alias("v")).select("k", f("v").alias("u")))
    """,
    """
    wide = spark.sparkContext.broadcast({n: n * $p for n in range(200)})
    f = F.udf(lambda x: wide.value.get(x), "int")
    r.frame("rows", spark.table("facts").select("k").distinct().select("k", f("k").alias("u")))
    """,
    """
    f = F.udf(imported_functions.initials, "string")
    r.frame("rows", spark.table("facts").groupBy("s").count().select("s", f("s").alias("u"), "count"))
    """,
    """
    @F.udtf(returnType="n: int, square: int")
    class Squares:
        def eval(self, start: int, end: int):
            for n in range(start, end):
                yield n, n * n
    r.frame("alone", Squares(F.lit($q), F.lit(12)))
    spark.udtf.register("squares", Squares)
    r.frame("lateral", spark.sql("SELECT d.k, s.square FROM dims d, LATERAL squares(0, d.k % $p) s"))
    """,
    """
    spark.udf.register("twice", lambda x: x * 2, "int")
    r.frame("rows", spark.sql("SELECT twice(k) AS u, count(*) AS c FROM facts GROUP BY twice(k) HAVING u > $p"))
    """,
    """
    def f(batches):
        for batch in batches:
            yield batch[batch.k % $p == 0][["k", "w"]]
    r.frame("rows", spark.table("dims").repartition(2).mapInPandas(f, "k int, w int"))
    """,
    """
    def f(batches):
        for batch in batches:
            batch["v"] = batch["v"] + $p
            yield batch
    ordered = spark.table("facts").select("id", "v").orderBy(F.desc("v"), "id")
    r.rows("ordered", ordered.mapInPandas(f, "id int, v long").collect(), ordered=True)
    """,
    """
    def f(batches):
        for batch in batches:
            yield batch.slice(0, $p)
    r.frame("rows", spark.table("dims").coalesce(1).sortWithinPartitions("w", "k").mapInArrow(f, "k int, name string, "
            "cat string, w int"))
    """,
    """
    def f(group):
        return group.assign(best=group.v.max()).head($q)[["k", "id", "best"]]
    grouped = spark.table("facts").select("k", "id", "v").orderBy("id").groupBy("k")
    r.frame("rows", grouped.applyInPandas(lambda g: f(g.sort_values("id")), "k int, id int, best long"))
    """,
    """
    import pandas as pd
    def f(key, left, right):
        return pd.DataFrame([(key[0], len(left), len(right))], columns=["k", "l", "r"])
    left, right = spark.table("facts").groupBy("k"), spark.table("events").groupBy("k")
    r.frame("rows", left.cogroup(right).applyInPandas(f, "k int, l long, r long"))
    """,
    """
    def f(table):
        return table.group_by("k").aggregate([("v", "max")]).rename_columns(["k", "m"])
    r.frame("rows", spark.table("facts").select("k", "v").groupBy("k").applyInArrow(f, "k int, m long"))
    """,
    """
    f = F.udf(lambda x: [x, x + $p], "array<int>")
    g = F.udf(lambda x: {"a": x, "b": str(x)}, "struct<a: int, b: string>")
    rows = spark.table("facts").groupBy("k").count().select("k", F.explode(f("k")).alias("e"), g("k").alias("s"))
    r.frame("rows", rows.select("k", "e", "s.a", "s.b"))
    """,
    """
    f = F.udf(lambda x: None if x is None else x % $p == 0, "boolean")
    kept = spark.table("facts").where(f("k")).groupBy("k").agg(F.count("*").alias("c"))
    r.frame("filtered", kept)
    kept.write.mode("overwrite").parquet(f"{out}/kept")
    r.written("kept", f"{out}/kept")
    """,
    """
    f = F.udf(lambda x: x, "int")
    three = spark.table("facts").select("id", "k").repartition(3, "k").withColumn("u", f("k"))
    three.write.mode("overwrite").parquet(f"{out}/three")
    r.written("three", f"{out}/three", fixed=True, names=True)
    r.value("partitions", three.rdd.getNumPartitions())
    """,
    """
    @F.udf("int")
    def slow(x):
        total = 0
        for n in range(400):
            total = (total + x * n) % 1009
        return total
    base = spark.table("facts").groupBy("id", "k").agg(F.sum("v").alias("v")).withColumn("u", slow("id"))
    r.frame("one", base.groupBy("u").count())
    r.frame("two", base.groupBy("k").agg(F.max("u").alias("m")))
    """,
)


def function(random: Random) -> Case:
    return case("python_function", random.choice(FUNCTIONS), p=random.randrange(2, 40), q=random.randrange(1, 7))


FAMILIES = {"python_function": function}
