"""Pairs that once had one identity, and pairs like them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark.identity.fingerprint import Fingerprint, exchange_fingerprint, fingerprint
from airflow_provider.spark.identity.plan_identity import read_plan
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from tests.spark.identity.hunt import exchanges, identity
from tests.spark.identity.learnt import Learnt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def shuffled(df: DataFrame) -> Fingerprint:
    """The fingerprint of the shuffle that runs last."""
    spark, exchange = df.sparkSession, next(exchanges(df._jdf.queryExecution().executedPlan()))
    return exchange_fingerprint(spark, Learnt(), exchange, QuerySettings(all_settings(spark)))


def explicit(df: DataFrame) -> Fingerprint:
    return fingerprint(df, Learnt())


def frames(spark: SparkSession) -> dict[str, tuple[Callable[[], DataFrame], Callable[[], DataFrame]]]:
    """Pairs of frames that give other rows, by name."""
    from pyspark.sql import functions as F

    base = spark.range(0, 40, 1, 2).selectExpr("id", "concat('C#', id) AS s", "cast(id AS int) AS i")
    many = [f"Customer#{number:09}" for number in range(300, 312)]

    def folded(text: str) -> Callable[[], DataFrame]:
        return lambda: base.selectExpr("id", f"{text} AS x")

    def where(column: Any) -> Callable[[], DataFrame]:
        return lambda: base.where(column)

    return {
        "isin of more than ten": (where(F.col("s").isin(many)), where(F.col("s").isin([*many[:-1], "Customer#1"]))),
        "isin of two": (where(F.col("s").isin("a#1", "b")), where(F.col("s").isin("a#2", "b"))),
        "folded arrays": (folded("array('1', '2')"), folded("array('1,2')")),
        "folded maps": (folded("map('a', 1, 'b', 2)"), folded("map('a', 1, 'b', 3)")),
        "a text of digits": (folded("'#1'"), folded("'#2'")),
        "zeros": (folded("0.0D * id"), folded("-0.0D * id")),
        "types of literals": (folded("1"), folded("1L")),
        "scales of decimals": (folded("1.0BD"), folded("1.00BD")),
        "try modes": (folded("try_cast(s AS int)"), folded("cast(s AS int)")),
        "time zones": (folded("from_utc_timestamp(now(), 'UTC')"), folded("from_utc_timestamp(now(), 'CET')")),
        "intervals": (folded("INTERVAL 1 DAY * i"), folded("INTERVAL 1 HOUR * i")),
        "aggregates": (
            lambda: base.groupBy("i").agg(F.sum("id")),
            lambda: base.groupBy("i").agg(F.avg("id")),
        ),
        "joins": (
            lambda: base.join(base.withColumnRenamed("s", "t"), "id", "left_semi"),
            lambda: base.join(base.withColumnRenamed("s", "t"), "id", "left_anti"),
        ),
        "columns in another order": (lambda: base.select("id", "i"), lambda: base.select("i", "id")),
        "columns of one type": (
            lambda: base.selectExpr("i AS a", "i + 1 AS b").select("a"),
            lambda: base.selectExpr("i AS a", "i + 1 AS b").select(F.col("b").alias("a")),
        ),
    }


NAMES = [
    "isin of more than ten", "isin of two", "folded arrays", "folded maps", "a text of digits", "zeros",
    "types of literals", "scales of decimals", "try modes", "time zones", "intervals", "aggregates", "joins",
    "columns in another order", "columns of one type",
]  # fmt: skip


def test_all_pairs_are_tested(spark: SparkSession) -> None:
    """No pair is left out of the list of names."""
    assert [*frames(spark)] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_they_differ(spark: SparkSession, name: str) -> None:
    """As a recovery point and as a shuffle; each, made again, is what it was."""
    one, other = frames(spark)[name]
    for look in (explicit, lambda df: shuffled(df.repartition(3, df.columns[0]))):
        found = [look(one()), look(other())]
        assert not found[0].opaque
        assert not found[1].opaque
        assert found[0].digest != found[1].digest
        assert name == "time zones" or look(one()).digest == found[0].digest  # that one reads the clock


@pytest.mark.parametrize("setting", ["spark.sql.ansi.enabled", "spark.sql.session.timeZone"])
def test_an_expression_keeps_the_setting_it_was_made_under(spark: SparkSession, setting: str) -> None:
    """Asked under one setting, frames made under two are told apart."""
    values = {"spark.sql.ansi.enabled": ("true", "false"), "spark.sql.session.timeZone": ("UTC", "Asia/Tokyo")}[setting]
    before = spark.conf.get(setting)
    made = []
    try:
        for value in values:
            spark.conf.set(setting, value)
            made.append(spark.range(3).selectExpr("cast(id AS string) + 1 AS x", "hour(timestamp_seconds(id)) AS y"))
            made[-1]._jdf.queryExecution().analyzed()
    finally:
        spark.conf.set(setting, before)  # type: ignore[arg-type]
    assert explicit(made[0]).digest != explicit(made[1]).digest


@pytest.mark.parametrize(
    "make",
    [
        lambda df: (df.repartition(3, "id"), df.repartition(4, "id")),
        lambda df: (df.repartition(3, "id"), df.repartition(3, "i")),
        lambda df: (df.repartition(3, "id"), df.repartitionByRange(3, "id")),
        lambda df: (df.repartition(3, "id"), df.repartition(3)),
        lambda df: (df.groupBy("i").count(), df.groupBy("i").agg({"id": "max"})),
        lambda df: (df.groupBy("i").count(), df.select("i").distinct()),
        lambda df: (df.repartition(3, "id"), df.repartition("id")),
    ],
)
def test_what_a_shuffle_writes_where_counts(spark: SparkSession, make: Any) -> None:
    """Partitioning with all its fields, modes of aggregates, why it shuffles."""
    one, other = make(spark.range(0, 40, 1, 2).selectExpr("id", "cast(id AS int) AS i"))
    assert shuffled(one).digest != shuffled(other).digest


ABOVE_TEXTS = {
    "one": ["max(s) AS x"],
    "two": ["max(s) AS x", "min(s) AS y"],
    "exchanged": ["min(s) AS x", "max(s) AS y"],
    "of another column": ["max(t) AS x", "min(s) AS y"],
    "in an expression": ["max(s) AS x", "concat(max(s), upper(min(s)), min(s)) AS y", "count(*) AS z"],
    "named first by one expression": ["concat(max(s), min(s)) AS x", "max(s) AS y"],
    "the same, then the other": ["concat(max(s), min(s)) AS x", "min(s) AS y"],
    "one is distinct": ["max(s) AS x", "count(DISTINCT t) AS y"],
}
"""Outputs of an aggregate that sorts, because some of its values are texts."""


def test_what_is_shuffled_above_texts_is_found_whatever_was_counted_before(spark: SparkSession) -> None:
    """Spark leaves ids there that it counts up. They become positions where the order of the aggregates is certain."""
    from pyspark.sql import functions as F

    base = spark.range(0, 40, 1, 2).selectExpr("id % 5 AS k", "concat('C#', id) AS s", "concat('D#', -id) AS t")

    def above(outputs: list[str]) -> str:
        df = base.groupBy("k").agg(*map(F.expr, outputs)).repartition(3, "x")
        assert "SortAggregate" in df._jdf.queryExecution().toString()
        return shuffled(df).digest

    found, again = ({name: above(outputs) for name, outputs in ABOVE_TEXTS.items()} for _ in range(2))
    assert len(set(found.values())) == len(ABOVE_TEXTS)
    uncertain = {"named first by one expression", "the same, then the other", "one is distinct"}
    assert {name for name in ABOVE_TEXTS if found[name] != again[name]} == uncertain


def counting(spark: SparkSession) -> dict[str, Callable[[str], DataFrame]]:
    """Frames whose analyzed plans hold what Spark counts up, or the time, each made of a column."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def base() -> DataFrame:
        return spark.range(8).selectExpr("id AS i", "id % 3 AS j", "array(id) AS a", "array(id + 1) AS b")

    def of(make: Callable[[DataFrame, Any], DataFrame]) -> Callable[[str], DataFrame]:
        return lambda name: (lambda df: make(df, df[name]))(base())

    def calling(function: str, query: str) -> Callable[[str], DataFrame]:
        def made(name: str) -> DataFrame:
            base().createOrReplaceTempView("counting")
            spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION counted{function.format(name)}")
            return spark.sql(query)

        return made

    return {
        "pivot": lambda name: base().groupBy(name).pivot("i", [1, 2]).count(),
        "window": of(lambda df, c: df.withColumn("x", F.sum(df["i"]).over(Window.partitionBy(c)))),
        "cube": of(lambda df, c: df.cube(c).count()),
        "sets": of(lambda df, c: df.groupingSets([[c]], c).count()),
        "explode": lambda name: of(lambda df, c: df.select("i", F.explode(c)))({"i": "a", "j": "b"}[name]),
        "lambda": lambda name: base().select("i", F.transform("a", lambda x: x + F.col(name)).alias("x")),
        "function": calling("(x LONG) RETURNS LONG RETURN x + ascii('{}')", "SELECT counted(i) AS x FROM counting"),
        "table function": calling(
            "() RETURNS TABLE (x LONG) RETURN SELECT {} FROM counting", "SELECT * FROM counted()"
        ),
    }


def test_what_spark_counts_up_does_not_count(spark: SparkSession) -> None:
    """Numbers of frames, names of lambda variables, the time at which a function was made: a retry has others."""
    for name, make in counting(spark).items():
        one = explicit(make("i")).digest
        spark.range(1).select("id")  # a frame more
        assert explicit(make("i")).digest == one, name
        assert explicit(make("j")).digest != one, name


def test_how_hadoop_reads_files_counts(spark: SparkSession, tmp_path: Path) -> None:
    """ORC's columns by name or by place: set in the session, or in Hadoop's own configuration."""
    spark.range(3).selectExpr("id AS a", "id * 10 AS b").write.orc(str(tmp_path / "t"))
    name, hadoop = "orc.force.positional.evolution", spark.sparkContext._jsc.hadoopConfiguration()

    def look() -> tuple[list[int], str, str]:
        df = spark.read.schema("b LONG, a LONG").orc(str(tmp_path / "t")).repartition(3, "a")
        return sorted(row.a for row in df.collect()), explicit(df).digest, shuffled(df).digest

    before, found = look(), []
    for set_, unset in (
        (spark.conf.set, spark.conf.unset),
        (hadoop.set, hadoop.unset),
    ):
        set_(name, "true")
        try:
            found.append(look())
        finally:
            unset(name)
    assert before[0] == [0, 1, 2]
    assert look() == before
    for rows, *digests in found:
        assert rows == [0, 10, 20]
        assert not {*digests} & {*before[1:]}


def test_settings_of_shuffles_are_named(spark: SparkSession) -> None:
    """How map outputs are written is part of a shuffle's fingerprint, with the values that are in force."""
    parts = shuffled(spark.range(9).repartition(3, "id")).parts
    assert parts["setting spark.shuffle.compress"] == "true"
    assert parts["setting spark.shuffle.manager"] == "sort"
    assert parts["setting spark.io.compression.codec"]
    assert parts["setting spark.serializer"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.shuffle.compress", "false"),
        ("spark.shuffle.manager", "tungsten-sort"),
        ("spark.io.compression.codec", "snappy"),
        ("spark.serializer", "org.apache.spark.serializer.KryoSerializer"),
    ],
)
def test_how_map_outputs_are_written_counts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """An application whose shuffle files are written in another way has other shuffles."""
    from pyspark import SparkConf

    df = spark.range(9).repartition(3, "id")
    found, conf = shuffled(df), SparkConf(loadDefaults=False).setAll(spark.sparkContext.getConf().getAll())
    assert shuffled(df).digest == found.digest
    monkeypatch.setattr(spark.sparkContext, "_conf", conf.set(name, value))
    assert shuffled(df).digest != found.digest


def test_the_version_of_spark_counts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version may write other rows, or the same in another way."""
    df = spark.range(9).repartition(3, "id")
    found = shuffled(df)
    monkeypatch.setitem(vars(spark), "version", f"{spark.version}.1")  # PySpark asks the JVM once
    assert shuffled(df).digest != found.digest


def test_rows_of_a_cached_frame_are_flagged(spark: SparkSession) -> None:
    """What was cached is described, and the fingerprint says that something was."""
    base = spark.range(0, 40, 1, 2).selectExpr("id % 7 AS k", "id")
    plain = shuffled(base.groupBy("k").count())
    cached = base.cache()
    try:
        found = shuffled(cached.groupBy("k").count())
        assert found.cached
        assert not plain.cached
        assert not found.opaque
        assert found.digest != plain.digest
        other = spark.range(0, 40, 1, 2).selectExpr("id % 8 AS k", "id").cache()
        assert shuffled(other.groupBy("k").count()).digest != found.digest
        other.unpersist()
    finally:
        cached.unpersist()


def test_draws_of_a_physical_plan_are_named(spark: SparkSession) -> None:
    """Chance, layout and order, wherever they are below a shuffle."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    base = spark.range(0, 40, 1, 2).selectExpr("id", "id % 7 AS k")
    window = Window.partitionBy("k").orderBy("id")
    drawn = {
        "Rand": base.withColumn("x", F.rand(3)),
        "Sample": base.sample(0.5, 3),
        "LocalLimit": base.limit(30),
        "CollectList": base.groupBy("k").agg(F.collect_list("id").alias("id")),
        "First": base.dropDuplicates(["k"]),
        "RowNumber": base.withColumn("x", F.row_number().over(window)),
        "SpecifiedWindowFrame": base.withColumn("x", F.sum("id").over(window.rowsBetween(-1, 0))),
        "MonotonicallyIncreasingID": base.withColumn("x", F.monotonically_increasing_id()),
    }
    for name, df in drawn.items():
        reasons = shuffled(df.repartition(5, "id")).not_deterministic
        assert any(reason.startswith(name) for reason in reasons), (name, reasons)
    spread = {
        "RoundRobinPartitioning": base.repartition(3),
        "RangePartitioning": base.repartitionByRange(3, "k"),
        "Coalesce": base.coalesce(1).groupBy("k").count().repartition(3, "k"),
    }
    for name, df in spread.items():
        reasons = shuffled(df).not_deterministic
        assert any(reason.startswith(name) for reason in reasons), (name, reasons)
    for df in (base, base.groupBy("k").agg(F.sum("id").alias("id")), base.withColumn("x", F.rank().over(window))):
        assert shuffled(df.repartition(5, "id")).not_deterministic == ()


def test_a_python_function_counts_by_what_it_does(spark: SparkSession) -> None:
    """Not by its name; in the analyzed plan and in the physical one."""
    from pyspark.sql import functions as F

    def made(number: int, name: str) -> DataFrame:
        def function(x: int) -> int:
            return x + number

        function.__name__ = name
        return spark.range(0, 40, 1, 2).select(F.udf(function, "long")("id").alias("x"))

    for look in (explicit, lambda df: shuffled(df.repartition(3, "x"))):
        one, same, other = (look(made(*given)) for given in ((1, "f"), (1, "f"), (2, "f")))
        assert not one.opaque
        assert one.digest == same.digest
        assert one.digest != other.digest


POINTS = """
from pyspark.sql.types import LongType, UserDefinedType

class Points(UserDefinedType):
    @classmethod
    def sqlType(cls):
        return LongType()

    @classmethod
    def module(cls):
        return "own_points"

    def deserialize(self, datum):
        return datum + 1
"""


def test_a_type_that_python_makes_values_of_counts_by_what_it_does(
    spark: SparkSession, tmp_path: Path, module_folder: Path
) -> None:
    """A function gets what the user's own type makes of a stored value; without a function nothing is made of it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    module = module_folder / "own_points.py"
    module.write_text(POINTS)
    schema = StructType([StructField("p", importlib.import_module("own_points").Points())])
    spark.range(3).selectExpr("id AS p").write.parquet(str(tmp_path / "t"))
    df = spark.read.schema(schema).parquet(str(tmp_path / "t"))
    called = df.select(F.udf(lambda p: p, "long")("p").alias("x")).repartition(3, "x")

    def look() -> list[str]:
        return [explicit(called).digest, shuffled(called).digest, explicit(df).digest]

    before = look()
    module.write_text(POINTS + "# unchanged")
    assert look() == before
    module.write_text(POINTS.replace("datum + 1", "datum + 2"))
    after = look()
    assert after[0] != before[0]
    assert after[1] != before[1]
    assert after[2] == before[2]


def test_what_is_not_known_has_no_identity(spark: SparkSession) -> None:
    """RDDs, observations and functions of the JVM, with a reason that a person can read."""
    from pyspark.sql import functions as F
    from pyspark.sql.observation import Observation

    base = spark.range(9)
    rdd = spark.sparkContext.parallelize([(1,)], 1).toDF("id long")
    for df, reason in (
        (rdd, "an RDD cannot be fingerprinted"),
        (base.observe(Observation(), F.count(F.lit(1))), "an observation"),
        (base.selectExpr("reflect('java.lang.Math', 'abs', -1) AS id"), "a Java method"),
    ):
        assert any(reason in said for said in shuffled(df.repartition(3, "id")).opaque)


def test_files_that_changed_are_other_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A file of another size or time of change makes another shuffle."""
    found = []
    for rows in (9, 10):
        spark.range(rows).write.mode("overwrite").parquet(str(tmp_path / "t"))
        found.append(shuffled(spark.read.parquet(str(tmp_path / "t")).repartition(3, "id")))
    assert found[0].digest != found[1].digest
    assert [part for part in found[0].parts if part.startswith("files ")]


def test_a_plan_that_was_looked_at_is_as_before(spark: SparkSession) -> None:
    """Reading computes nothing, sets nothing and starts no job."""
    from pyspark.sql import functions as F

    df = spark.range(0, 40, 1, 2).groupBy((F.col("id") % 7).alias("k")).count()
    settings = spark.sparkContext.getConf().getAll()
    session = {pair._1(): pair._2() for pair in _pairs(spark)}
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup()
    learnt = Learnt()
    analyzed = df._jdf.queryExecution().analyzed()
    assert identity(read_plan(spark, learnt, analyzed)) == identity(read_plan(spark, learnt, analyzed))
    shuffled(df)
    assert spark.sparkContext.getConf().getAll() == settings
    assert {pair._1(): pair._2() for pair in _pairs(spark)} == session
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == jobs


def _pairs(spark: SparkSession) -> list[Any]:
    from airflow_provider.spark.jvm.scala import items

    return list(items(spark._jsparkSession.conf().getAll().toSeq()))
