"""A nightly job of all 22 queries of TPC-H, an unmodified script: right rows, uninterrupted, killed and run again."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from random import Random

import pytest

from tests.queries.compare import OTHER_ENGINE, SAME_ENGINE, differences, out_of_order, spark_result
from tests.queries.published_sql import CHANGES, order_keys, published_queries, spark_queries
from tests.queries.query_data import QuerySuite, connect
from tests.queries.runs import JOBS, ScriptRuns
from tests.queries.seeded_moments import KILLED, SEED, fault, killed_after, killed_at, moment, well

pytestmark = [pytest.mark.process, pytest.mark.integration, pytest.mark.timeout(1200)]

SCRIPT = JOBS / "queries.py"
QUERIES = range(1, 23)
FOR_MUCH_DATA = {"spark.driver.memory": "3g"}
FOR_MANY_QUERIES = {**FOR_MUCH_DATA, "spark.driver.extraJavaOptions": "-Dlog4j2.level=warn"}
"""For drivers that live long enough for the JVM to compile well."""


@dataclass(frozen=True)
class Uninterrupted:
    """The results of a suite by plain Spark and under ``spark-recovery run``.

    :ivar seconds: that the latter took
    """

    suite: QuerySuite
    plain: Path
    recorded: Path
    seconds: float

    def check_against_duckdb(self, number: int) -> None:
        """Plain Spark's rows are DuckDB's, which ran the text as published."""
        connection = self.suite.duckdb()
        published = published_queries(connection, self.suite.kind)[number]
        expected = connection.execute(published).to_arrow_table()
        assert differences(expected, spark_result(self.plain / f"{number:02}"), OTHER_ENGINE) == []

    def check(self, number: int, results: Path) -> None:
        """Other results have plain Spark's rows and columns, in the order that the query asks for."""
        expected, got = spark_result(self.plain / f"{number:02}"), spark_result(results / f"{number:02}")
        assert got.schema.names == expected.schema.names
        assert got.schema.types == expected.schema.types
        assert differences(expected, got, SAME_ENGINE) == []
        assert out_of_order(got, order_keys(self.suite.sql(number), got.schema.names)) == []


def uninterrupted(runs: ScriptRuns, suite: QuerySuite) -> Uninterrupted:
    plain, recorded = runs.folder / "plain-results", runs.folder / "recorded-results"
    ended = runs.plain_and_attempt(plain, recorded)
    well(ended[0])
    return Uninterrupted(suite, plain, recorded, well(ended[1]).seconds)


def nightly_job(suite: QuerySuite, folder: Path) -> ScriptRuns:
    """All queries of a suite, small."""
    return ScriptRuns(folder, SCRIPT, (str(suite.folder),))


def walked_query(suite: QuerySuite, folder: Path, number: int) -> ScriptRuns:
    """One query of a suite that is walked."""
    folder.mkdir(exist_ok=True)
    return ScriptRuns(folder, SCRIPT, (str(suite.folder),), (str(number),), FOR_MUCH_DATA)


def walked_job(suite: QuerySuite, folder: Path) -> ScriptRuns:
    """All queries of a suite that is walked."""
    return ScriptRuns(folder, SCRIPT, (str(suite.folder),), (), FOR_MANY_QUERIES, timeout=3600)


@pytest.fixture(scope="module")
def nightly(tpch: QuerySuite, tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    return uninterrupted(nightly_job(tpch, tmp_path_factory.mktemp("nightly")), tpch)


@pytest.mark.parametrize("number", QUERIES)
def test_the_queries_have_the_right_rows(nightly: Uninterrupted, number: int) -> None:
    """A query's result under ``spark-recovery run`` is plain Spark's, and plain Spark's is DuckDB's."""
    nightly.check_against_duckdb(number)
    nightly.check(number, nightly.recorded)


@pytest.mark.walk
def test_killed_at_a_random_moment_then_at_a_fault_point_then_through(nightly: Uninterrupted, tmp_path: Path) -> None:
    """The driver is killed well into its work, the next one at some fault point; the third has the right rows."""
    random = Random(SEED)
    runs = nightly_job(nightly.suite, tmp_path)
    target, after, point = tmp_path / "results", moment(random, nightly.seconds, 0.3, 0.6), fault(random)
    print(f"killed after {after:.1f} s, then at {point}")  # noqa: T201 - pytest shows it with a failure
    killed_after(runs, target, after)
    while not runs.would_reuse():  # a busy machine had not come so far
        after *= 1.3
        killed_after(runs, target, after)
    killed_at(runs, target, point)
    well(runs.attempt(target))
    for number in QUERIES:
        nightly.check(number, target)
    assert runs.reused() > 0


@pytest.mark.walk
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", QUERIES)
def test_each_query_killed_at_seeded_moments(tpch_walked: QuerySuite, tmp_path: Path, number: int) -> None:
    """Each query at scale 1, alone in its driver: uninterrupted, killed at three moments and at a fault point, and each
    time run again, it has the right rows.
    """
    random = Random(f"{SEED} {number}")

    def job(name: str) -> tuple[ScriptRuns, Path]:
        return walked_query(tpch_walked, tmp_path / name, number), tmp_path / name / "results"

    runs, target = job("full")
    plain = tmp_path / "plain-results"
    well(runs.plain(plain))
    walked = Uninterrupted(tpch_walked, plain, target, well(runs.attempt(target)).seconds)
    walked.check_against_duckdb(number)
    walked.check(number, target)
    for name in ("first", "second", "third"):
        runs, target = job(name)
        killed_after(runs, target, moment(random, walked.seconds))
        well(runs.attempt(target))
        walked.check(number, target)
    runs, target = job("fault")
    killed_at(runs, target, fault(random))
    well(runs.attempt(target))
    walked.check(number, target)


@pytest.mark.walk
@pytest.mark.timeout(4 * 3600)
def test_tpcds_killed_at_seeded_moments(
    tpcds_walked: QuerySuite, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All 99 queries of TPC-DS at scale 1 in one driver, killed at five moments, each attempt going on from the last:
    all have plain Spark's rows, and plain Spark's are DuckDB's.
    """
    random = Random(SEED)
    expected = uninterrupted(walked_job(tpcds_walked, tmp_path_factory.mktemp("tpcds")), tpcds_walked)
    runs = walked_job(tpcds_walked, tmp_path)
    target = tmp_path / "results"
    moments = [moment(random, expected.seconds) for _ in range(5)]
    killed = [runs.attempt(target, kill_after=after).code for after in moments]
    assert set(killed) <= {KILLED, 0}
    well(runs.attempt(target))
    for number in tpcds_walked.numbers:
        expected.check_against_duckdb(number)
        expected.check(number, expected.recorded)
        expected.check(number, target)


@pytest.mark.parametrize("kind", ["tpch", "tpcds"])
def test_only_the_listed_queries_differ_from_the_published_text(kind: str) -> None:
    """All others run in Spark as DuckDB has them."""
    connection = connect(kind)
    published, queries = published_queries(connection, kind), spark_queries(connection, kind)
    assert {number for number in published if published[number] != queries[number]} == set(CHANGES[kind])
    assert len(published) == {"tpch": 22, "tpcds": 99}[kind]


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT a, b FROM t ORDER BY b DESC, t.a LIMIT 10", [(1, True), (0, False)]),
        ("SELECT a, b FROM t ORDER BY a NULLS FIRST, b DESC NULLS LAST", [(0, False), (1, True)]),
        ("SELECT a, b FROM t ORDER BY a NULLS LAST, b", []),
        ("SELECT a, b FROM t ORDER BY a, b + 1, b", [(0, False)]),
        ("SELECT a, rank() OVER (ORDER BY b) FROM t", []),
    ],
)
def test_the_keys_of_an_order(sql: str, keys: list[tuple[int, bool]]) -> None:
    """The last ORDER BY counts, as far as it names columns of the result and sorts nulls as least."""
    assert order_keys(sql, ["a", "b"]) == keys


@pytest.mark.parametrize("kind", ["tpch", "tpcds"])
def test_duckdb_has_the_version_of_its_extensions(kind: str) -> None:
    """The packages that bring DuckDB's extensions are pinned to DuckDB's version."""
    assert metadata.version(f"duckdb-extension-{kind}") == metadata.version("duckdb")
