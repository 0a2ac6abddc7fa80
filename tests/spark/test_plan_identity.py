"""Two plans have one description only if they mean the same; the same plan has the same one in every session."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkConf

from airflow_provider.spark.identity.fingerprint import _has_meaning, _names_of_files
from airflow_provider.spark.identity.local_rows import content_digest
from airflow_provider.spark.identity.plan_identity import PlanDescription, read_plan
from airflow_provider.spark.jvm.determinism import NOT_DETERMINISTIC
from airflow_provider.spark.jvm.known_classes import OPAQUE
from airflow_provider.spark.jvm.scala import items
from tests.spark.identity.learnt import Learnt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def describe(spark: SparkSession) -> Callable[[DataFrame], PlanDescription]:
    learnt = Learnt()
    return lambda df: read_plan(spark, learnt, df._jdf.queryExecution().analyzed())


def identity(description: PlanDescription) -> tuple[str, ...]:
    return (description.plan, *(source.identity for source in description.sources))


def documented_queries(spark: SparkSession) -> Iterator[str]:
    """Every example query in the documentation of Spark's own functions."""
    registry = spark._jsparkSession.sessionState().functionRegistry()
    for function in items(registry.listFunction()):
        info = registry.lookupFunction(function)
        if not info.isEmpty():
            for match in re.finditer(r"> (SELECT .*?);\n", info.get().getExamples(), re.DOTALL):
                yield match[1].replace("_FUNC_", info.get().getName())


@pytest.mark.walk
def test_no_two_documented_queries_are_taken_for_one(
    spark: SparkSession, describe: Callable[[DataFrame], PlanDescription]
) -> None:
    """Of all documented examples, those with one identity give one result; asked again, each has the same one."""
    from pyspark.errors import AnalysisException, ParseException

    spark.sparkContext.setLogLevel("OFF")
    by_identity = defaultdict(list)
    described = 0
    for query in dict.fromkeys(documented_queries(spark)):
        try:
            df = spark.sql(query)
        except (AnalysisException, ParseException):
            continue  # it needs files or tables that are not here
        description = describe(df)
        described += 1
        judged = description.opaque or description.not_deterministic
        assert judged or identity(description) == identity(describe(spark.sql(query))), query
        assert judged or df._jdf.queryExecution().analyzed().deterministic(), query
        if not judged:
            by_identity[identity(description)].append(query)
    spark.sparkContext.setLogLevel("ERROR")
    assert described > 1000
    synonyms = [queries for queries in by_identity.values() if len(queries) > 1]
    assert len(synonyms) > 20
    for queries in synonyms:
        assert len({str(spark.sql(query).collect()) for query in queries}) == 1, queries


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT CAST(1 AS INT) AS x", "SELECT CAST(1 AS BIGINT) AS x"),
        ("SELECT 0.0D AS x", "SELECT -0.0D AS x"),
        ("SELECT 1.0BD AS x", "SELECT 1.00BD AS x"),
        ("SELECT x'00ff' AS x", "SELECT x'00fe' AS x"),
        ("SELECT 'a ' AS x", "SELECT 'a' AS x"),
        ("SELECT 'a\\nb' AS x", "SELECT 'a\\rb' AS x"),
        ("SELECT '#1' AS x", "SELECT '#2' AS x"),
        ("SELECT DATE'2024-01-01' AS x", "SELECT TIMESTAMP'2024-01-01' AS x"),
        ("SELECT CAST('1' AS INT) AS x", "SELECT TRY_CAST('1' AS INT) AS x"),
        (
            "SELECT from_json('', 'a INT', map('mode', 'FAILFAST')) AS x",
            "SELECT from_json('', 'a INT', map('mode', 'PERMISSIVE')) AS x",
        ),
        ("SELECT 'a' LIKE '%b' ESCAPE '/' AS x", "SELECT 'a' LIKE '%b' ESCAPE '!' AS x"),
        ("SELECT id FROM range(9) ORDER BY id", "SELECT id FROM range(9) ORDER BY id DESC"),
        ("SELECT id FROM range(9) ORDER BY id NULLS FIRST", "SELECT id FROM range(9) ORDER BY id NULLS LAST"),
        (
            "SELECT sum(id) OVER (ORDER BY id ROWS 1 PRECEDING) AS x FROM range(9)",
            "SELECT sum(id) OVER (ORDER BY id ROWS 2 PRECEDING) AS x FROM range(9)",
        ),
        (
            "SELECT sum(id) OVER (ORDER BY id ROWS 1 PRECEDING) AS x FROM range(9)",
            "SELECT sum(id) OVER (ORDER BY id RANGE 1 PRECEDING) AS x FROM range(9)",
        ),
        ("SELECT count(id) AS x FROM range(9)", "SELECT count(DISTINCT id) AS x FROM range(9)"),
        (
            "SELECT sum(id) FILTER (WHERE id > 1) AS x FROM range(9)",
            "SELECT sum(id) FILTER (WHERE id > 2) AS x FROM range(9)",
        ),
        ("SELECT id FROM range(9) WHERE id IN (SELECT 1)", "SELECT id FROM range(9) WHERE id IN (SELECT 2)"),
        ("SELECT id FROM range(9) WHERE id IN (SELECT 1)", "SELECT id FROM range(9) WHERE id NOT IN (SELECT 1)"),
        ("SELECT (SELECT max(id) FROM range(3)) AS x", "SELECT (SELECT max(id) FROM range(4)) AS x"),
        ("WITH c AS (SELECT 1 AS x) SELECT * FROM c", "WITH c AS (SELECT 2 AS x) SELECT * FROM c"),
        ("SELECT id FROM range(9) UNION SELECT 1", "SELECT id FROM range(9) UNION ALL SELECT 1"),
        ("SELECT id FROM range(9) EXCEPT SELECT 1", "SELECT id FROM range(9) EXCEPT ALL SELECT 1"),
        ("SELECT explode(array(1)) AS x FROM range(9)", "SELECT explode_outer(array(1)) AS x FROM range(9)"),
        (
            "SELECT * FROM range(9) LATERAL VIEW explode(array()) t AS x",
            "SELECT * FROM range(9) LATERAL VIEW OUTER explode(array()) t AS x",
        ),
        ("SELECT id FROM range(9) GROUP BY id", "SELECT id FROM range(9) GROUP BY ROLLUP (id)"),
        (
            "SELECT a.id FROM range(9) a LEFT SEMI JOIN range(3) b ON a.id = b.id",
            "SELECT a.id FROM range(9) a LEFT ANTI JOIN range(3) b ON a.id = b.id",
        ),
        (
            "SELECT a.id FROM range(9) a JOIN range(3) b ON a.id = b.id",
            "SELECT b.id FROM range(9) a JOIN range(3) b ON a.id = b.id",
        ),
        ("SELECT transform(array(1), x -> x + 1) AS x", "SELECT transform(array(1), x -> x + 2) AS x"),
        ("SELECT named_struct('a', 1) AS x", "SELECT named_struct('b', 1) AS x"),
        ("SELECT id FROM range(9)", "SELECT id FROM range(0, 9, 2)"),
        ("SELECT 'a' COLLATE UTF8_LCASE = 'A' AS x", "SELECT 'a' COLLATE UTF8_BINARY = 'A' AS x"),
    ],
)
def test_small_differences_are_seen(
    spark: SparkSession, describe: Callable[[DataFrame], PlanDescription], one: str, other: str
) -> None:
    """Types, modes, options, frames, orders, kinds of joins and sets: each makes another plan."""
    assert identity(describe(spark.sql(one))) != identity(describe(spark.sql(other)))


@pytest.mark.integration
def test_width_and_depth_are_described_to_the_end(
    spark: SparkSession, describe: Callable[[DataFrame], PlanDescription]
) -> None:
    """The last of 300 columns, list members and map entries counts, and so does the lowest of 300 nodes."""
    wide = [f"id + {i} AS c{i}" for i in range(300)]
    base = spark.range(5)
    assert identity(describe(base.selectExpr(*wide))) != identity(
        describe(base.selectExpr(*wide[:-1], "id + 0 AS c299"))
    )
    members = ", ".join(map(str, range(300)))
    assert identity(describe(base.where(f"id IN ({members}, 1000)"))) != identity(
        describe(base.where(f"id IN ({members}, 1001)"))
    )
    options = [
        f"map({', '.join(f'{chr(39)}o{i}{chr(39)}, {chr(39)}{i}{chr(39)}' for i in range(n))})" for n in (60, 61)
    ]
    assert len({identity(describe(spark.sql(f"SELECT from_json('', 'a INT', {text})"))) for text in options}) == 2

    def deep(lowest: int) -> DataFrame:
        df = base.where(f"id > {lowest}")
        for _ in range(300):
            df = df.where("id < 9")
        return df

    assert identity(describe(deep(1))) == identity(describe(deep(1)))
    assert identity(describe(deep(1))) != identity(describe(deep(2)))
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == "25"


def test_the_values_of_a_tables_partitions_count(
    spark: SparkSession, describe: Callable[[DataFrame], PlanDescription], tmp_path: Path
) -> None:
    """A catalog says which values the rows of a folder have, whatever its path is called."""
    folder = str(tmp_path / "b17")
    spark.range(3).write.parquet(folder)
    days = f"LOCATION '{tmp_path}/days'"  # so that nothing is deleted with a partition
    spark.sql(f"CREATE TABLE of_days (id LONG, day STRING) USING parquet PARTITIONED BY (day) {days}")
    try:
        found = []
        for day in ("20", "21", "20"):
            spark.sql(f"ALTER TABLE of_days ADD PARTITION (day='{day}') LOCATION '{folder}'")
            assert {row.day for row in spark.table("of_days").collect()} == {day}
            found.append(identity(describe(spark.table("of_days"))))
            spark.sql(f"ALTER TABLE of_days DROP PARTITION (day='{day}')")
        assert found[0] == found[2] != found[1]
    finally:
        spark.sql("DROP TABLE of_days")


def test_files_that_another_file_says_how_to_read_have_no_identity(
    spark: SparkSession, describe: Callable[[DataFrame], PlanDescription], tmp_path: Path
) -> None:
    """The schema by which rows of XML are checked may change."""
    (tmp_path / "rows.xml").write_text("<rows><row><id>1</id></row></rows>")
    reader = spark.read.schema("id LONG").option("rowTag", "row")
    assert not describe(reader.xml(str(tmp_path))).opaque
    (why,) = describe(reader.option("rowValidationXSDPath", "rules.xsd").xml(str(tmp_path))).opaque
    assert "rowvalidationxsdpath" in why.lower()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([{"s": "a"}, {"s": float("nan")}], [{"s": "a"}, {"s": None}]),
        ([{"s": 1}, {"s": 2.5}], [{"s": 1.0}, {"s": 2.5}]),
        ([{"s": [None]}], [{"s": [float("nan")]}]),
    ],
)
def test_objects_that_arrow_makes_equal_are_other_rows(one: list[Any], other: list[Any]) -> None:
    """Without Arrow, PySpark makes "NaN" of NaN, and NULL of ``None``."""
    import pandas as pd

    one_digest, other_digest = (content_digest(pd.DataFrame(rows, dtype=object)) for rows in (one, other))
    assert one_digest != other_digest
    assert one_digest == content_digest(pd.DataFrame(one, dtype=object))


def test_what_brings_the_executors_python_counts_by_its_name() -> None:
    """Some cluster managers copy an archive to another folder for each application."""
    conf = SparkConf(loadDefaults=False)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))
    assert _names_of_files(spark, "spark.archives") == ""
    conf.set("spark.archives", "hdfs:///envs/11/env-11.tar.gz#env, s3a://jobs/more.zip")
    assert _names_of_files(spark, "spark.archives") == "env-11.tar.gz#env,more.zip"


def test_how_pandas_functions_see_numbers_counts() -> None:
    """With extension types a missing number is ``<NA>``, without them NaN, and all are floating-point numbers."""
    assert _has_meaning("spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype")
    assert not _has_meaning("spark.sql.execution.arrow.pyspark.enabled")


def test_a_time_of_day_is_one_of_the_drivers_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark reads a time without a zone by the clock of the machine."""
    local, zoned = (datetime(2026, 1, 1, tzinfo=zone) for zone in (None, UTC))
    found = []
    try:
        for zone in ("UTC", "Europe/Berlin"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            found.append([content_digest([(1, {"at": [at]})]) for at in (local, zoned)])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1] or not found[0][1]


def test_the_number_of_slices_is_no_part_of_a_plan(
    spark: SparkSession, describe: Callable[[DataFrame], PlanDescription]
) -> None:
    """How a range is cut is told by the layout."""
    assert identity(describe(spark.range(0, 9, 1, 2))) == identity(describe(spark.range(0, 9, 1, 3)))


@pytest.mark.integration
def test_every_class_in_the_tables_exists(spark: SparkSession) -> None:
    """A name that Spark does not have would protect nobody; those of other versions and of Hive are listed here."""
    elsewhere = {name for name in OPAQUE if name.startswith("Hive")} | {
        "ScalaAggregator",
        "ScalaUDAF",
        "TypedAggregateExpression",
        "SimpleTypedAggregateExpression",
        "ComplexTypedAggregateExpression",
        "TransformWithStateInPandas",
    }
    packages = ["expressions", "expressions.aggregate", "expressions.objects", "plans.logical", "analysis", "optimizer"]

    def exists(name: str) -> bool:
        for package in packages:
            try:
                spark._jvm.java.lang.Class.forName(f"org.apache.spark.sql.catalyst.{package}.{name}")  # type: ignore[union-attr]
            except Exception:  # noqa: BLE001 - not in this package
                continue
            return True
        return False

    assert {name for name in [*NOT_DETERMINISTIC, *OPAQUE] if not exists(name)} == elsewhere


def test_the_table_in_the_docs_is_the_table_in_the_code() -> None:
    """docs/reuse.md lists exactly the expressions that are kept whole or not at all."""
    rows = re.findall(r"^\| `([^|]*)` \|", (DOCS / "reuse.md").read_text(), re.MULTILINE)
    assert {name.strip("` ") for row in rows for name in row.split(",")} == set(NOT_DETERMINISTIC)
