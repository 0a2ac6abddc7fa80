"""What varies from run to run is kept whole or not at all, and is found again although its seeds differ."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark import checkpoint
from airflow_provider.spark.context import RecoveryContext
from airflow_provider.spark.identity.fingerprint import Fingerprint, fingerprint
from tests.spark.attempts import Attempts, vertices
from tests.support.parameters import thinned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path)


@pytest.fixture
def context(attempts: Attempts) -> Iterator[RecoveryContext]:
    with attempts.attempt() as context:
        yield context


def frames(spark: SparkSession) -> dict[str, Callable[[], DataFrame]]:
    """Frames that are not deterministic, by name."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def base() -> DataFrame:
        return spark.range(0, 40, 1, 4).selectExpr("id", "id % 7 AS k")

    window = Window.partitionBy("k").orderBy("k")
    strange = F.udf(lambda x: x, "long").asNondeterministic()
    drawing = F.udf(lambda x: f"{x}-{uuid.uuid4()}", "string")
    return {
        "rand": lambda: base().withColumn("x", F.rand()),
        "rand with a seed": lambda: base().withColumn("x", F.rand(3)),
        "randn": lambda: base().withColumn("x", F.randn()),
        "rand in SQL": lambda: base().selectExpr("id", "rand() AS x"),
        "rand in a filter": lambda: base().where(F.rand() > 0.5),
        "uuid": lambda: base().selectExpr("uuid() AS x"),
        "shuffle": lambda: base().selectExpr("shuffle(array(id, k)) AS x"),
        "current_timestamp": lambda: base().withColumn("x", F.current_timestamp()),
        "current_date": lambda: base().withColumn("x", F.current_date()),
        "now": lambda: base().selectExpr("now() AS x"),
        "now as a text": lambda: base().where("CAST(' Today ' AS DATE) > DATE'2026-01-01'"),
        "aes_encrypt": lambda: base().selectExpr("aes_encrypt(string(id), '0000111122223333') AS x"),
        "unix_timestamp": lambda: base().withColumn("x", F.unix_timestamp()),
        "localtimestamp": lambda: base().withColumn("x", F.localtimestamp()),
        "monotonically_increasing_id": lambda: base().withColumn("x", F.monotonically_increasing_id()),
        "spark_partition_id": lambda: base().withColumn("x", F.spark_partition_id()),
        "input_file_name": lambda: base().withColumn("x", F.input_file_name()),
        "first": lambda: base().groupBy("k").agg(F.first("id")),
        "last": lambda: base().groupBy("k").agg(F.last("id")),
        "any_value": lambda: base().groupBy("k").agg(F.any_value("id")),
        "collect_list": lambda: base().groupBy("k").agg(F.collect_list("id")),
        "collect_set": lambda: base().groupBy("k").agg(F.collect_set("id")),
        "listagg": lambda: base().groupBy("k").agg(F.listagg(F.col("id").cast("string"))),
        "max_by": lambda: base().groupBy("k").agg(F.max_by("id", "k")),
        "mode": lambda: base().groupBy("k").agg(F.mode("id")),
        "row_number": lambda: base().withColumn("x", F.row_number().over(window)),
        "lag": lambda: base().withColumn("x", F.lag("id").over(window)),
        "ntile": lambda: base().withColumn("x", F.ntile(2).over(window)),
        "limit": lambda: base().limit(5),
        "limit in a subquery": lambda: spark.sql(
            "SELECT id FROM range(9) WHERE id IN (SELECT id FROM range(9) LIMIT 3)"
        ),
        "offset": lambda: base().offset(5),
        "sample": lambda: base().sample(0.5),
        "sample by keyword": lambda: base().sample(fraction=0.5),
        "sample with replacement": lambda: base().sample(True, 0.5),
        "sample with a seed": lambda: base().sample(0.5, 3),
        "sample whose seed is dropped": lambda: base().sample(0.5, seed=3),  # by PySpark 4
        "randomSplit": lambda: base().randomSplit([0.5, 0.5])[0],
        "repartition": lambda: base().repartition(3),
        "dropDuplicates": lambda: base().dropDuplicates(["k"]),
        "a function that is marked": lambda: base().withColumn("x", strange("id")),
        "a function that draws": lambda: base().withColumn("x", drawing("id")),
    }


NAMES = [
    "rand", "rand with a seed", "randn", "rand in SQL", "rand in a filter", "uuid", "shuffle", "current_timestamp",
    "current_date", "now", "now as a text", "aes_encrypt", "unix_timestamp", "localtimestamp",
    "monotonically_increasing_id", "spark_partition_id", "input_file_name", "first", "last", "any_value",
    "collect_list", "collect_set", "listagg", "max_by", "mode", "row_number", "lag", "ntile", "limit",
    "limit in a subquery", "offset", "sample", "sample by keyword", "sample with replacement", "sample with a seed",
    "sample whose seed is dropped", "randomSplit", "repartition", "dropDuplicates", "a function that is marked",
    "a function that draws",
]  # fmt: skip


def test_all_frames_are_tested(spark: SparkSession) -> None:
    """No case is left out of the list of names."""
    assert [*frames(spark)] == NAMES


@pytest.mark.parametrize("name", thinned(NAMES, 3))
def test_it_is_kept_whole_and_found_again(spark: SparkSession, attempts: Attempts, name: str) -> None:
    """Made by two attempts, with seeds drawn anew, it is the same vertex, and one that cannot be kept in part."""
    make = frames(spark)[name]
    found = []
    for _ in range(2):
        with attempts.attempt() as context:
            found.append(fingerprint(make(), context))
    assert not found[0].opaque
    assert found[0].not_deterministic
    assert found[0].digest == found[1].digest


DRAWN = [
    "rand", "randn", "rand in SQL", "rand in a filter", "uuid", "shuffle", "sample", "sample by keyword",
    "sample with replacement", "sample whose seed is dropped", "randomSplit",
]  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_two_draws_are_never_one(spark: SparkSession, context: RecoveryContext, name: str) -> None:
    """The same text made twice by one attempt is two draws; the same frame asked twice is one."""
    make = frames(spark)[name]
    one, other = make(), make()
    assert fingerprint(one, context).digest == fingerprint(one, context).digest
    assert fingerprint(one, context).digest != fingerprint(other, context).digest


def test_draws_of_one_frame_are_told_apart(spark: SparkSession, context: RecoveryContext) -> None:
    """A column that is used twice holds one draw; two columns of the same text hold two."""
    from pyspark.sql import functions as F

    base = spark.range(9)
    for make in (F.rand, F.uuid, lambda: F.expr("uuid()")):
        twice = base.select(make().alias("x")).select("x", "x")
        two = base.select(make().alias("x"), make().alias("y")).select("x", F.col("y").alias("x"))
        assert fingerprint(twice, context).digest != fingerprint(two, context).digest


@pytest.mark.few(1)
@pytest.mark.parametrize("drawn", ["by Spark", "by a function", ""])
def test_what_is_made_of_a_cached_frame_fits_to_it(spark: SparkSession, attempts: Attempts, drawn: str) -> None:
    """A cached frame of random numbers has one value in an attempt, so what an earlier attempt has made of its own is
    not used; what only depends on the order of rows is.
    """
    from pyspark.sql import functions as F

    columns: dict[str, Any] = {
        "by Spark": F.rand,
        "by a function": F.udf(lambda: random.random(), "double"),
        "": lambda: F.col("id") / 7,
    }
    reused = []
    for _ in range(2):
        with attempts.attempt() as context:
            base = spark.range(100).withColumn("z", columns[drawn]()).cache()
            expected = base.agg(F.sum("z")).collect()[0][0]
            made = checkpoint(base.groupBy().agg(F.sum("z").alias("z"), F.first("id")), "sum").collect()[0]
            assert made.z == pytest.approx(expected)
            base.unpersist()
            reused.append(vertices(context)["sum"].reused)
    assert reused == [0, 0 if drawn else 1]


def test_the_random_numbers_of_a_script_are_its_own(spark: SparkSession, attempts: Attempts) -> None:
    """What Python's generator gives, and which rows a sample holds, is the same with recovery and without."""
    from pyspark.sql import functions as F

    def script() -> list[object]:
        random.seed(42)
        base = spark.range(0, 400, 1, 4)
        drawn = [*(df.count() for df in base.randomSplit([0.5, 0.5])), base.sample(0.5, seed=3).count()]
        base.select(F.rand(), F.randn()).sample(0.1).count()
        return [*drawn, random.random()]

    plain = script()
    with attempts.attempt():
        assert script() == plain


def test_seeds_that_were_given_count(spark: SparkSession, context: RecoveryContext) -> None:
    """Another seed is another vertex, and a seed that was given is not the one that Spark draws."""
    from pyspark.sql import functions as F

    def of(df: DataFrame) -> Fingerprint:
        return fingerprint(df, context)

    base = spark.range(9)
    seeds = [of(base.withColumn("x", F.rand(*seed))).digest for seed in ((1,), (2,), ())]
    assert len({*seeds}) == 3
    samples = [of(base.sample(0.5, *seed)).digest for seed in ((1,), (2,), ())]
    assert len({*samples}) == 3


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["rand", "row_number", "collect_list", "current_timestamp", "limit"])
def test_nothing_of_a_lost_incarnation_is_mixed(spark: SparkSession, attempts: Attempts, name: str) -> None:
    """Complete, it is reused; with one partition lost, all of it and all that was derived from it is computed again."""

    def script() -> None:
        base = checkpoint(frames(spark)[name](), "base")
        checkpoint(base.groupBy().count(), "derived")

    with attempts.attempt():
        script()
    with attempts.attempt() as context:
        script()
        assert {vertex: report.computed for vertex, report in vertices(context).items()} == {"base": 0, "derived": 0}
    next(path for path in sorted(attempts.folder.rglob("*.parquet")) if "/base-" in str(path)).unlink()
    with attempts.attempt() as context:
        script()
        assert {vertex: report.reused for vertex, report in vertices(context).items()} == {"base": 0, "derived": 0}
        assert any("was computed again" in reason for reason in vertices(context)["derived"].because)


def test_the_script_has_the_last_word(spark: SparkSession, attempts: Attempts) -> None:
    """``deterministic`` overrules what the plan looks like, both ways."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    unique = Window.partitionBy("k").orderBy("id")
    ranked = spark.range(0, 40, 1, 4).selectExpr("id", "id % 7 AS k").withColumn("x", F.row_number().over(unique))
    with attempts.attempt() as context:
        checkpoint(ranked, "vouched for", deterministic=True)
        checkpoint(spark.range(0, 9, 1, 3), "doubted", deterministic=False)
        kinds = {v.initialized.name: v.initialized.deterministic for v in context.master.graph.vertices.values()}
    assert kinds == {"vouched for": True, "doubted": False}


def test_a_version_stands_for_what_has_none(spark: SparkSession, attempts: Attempts) -> None:
    """With the same text an RDD is reused, with another one it is computed again, and the report says so."""

    def script(version: str) -> None:
        checkpoint(spark.sparkContext.parallelize([(1,), (2,)], 2).toDF("x long"), "rdd", version=version)

    for version, reused in (("a", 0), ("a", 2), ("b", 0)):
        with attempts.attempt() as context:
            script(version)
            assert vertices(context)["rdd"].reused == reused
    assert vertices(context)["rdd"].because == ["the version given to checkpoint() was a, is b"]
