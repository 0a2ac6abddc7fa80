"""Looking on leaves no trace: nothing is made by it, no job started, no setting reaches another session (trap 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.session import _monkey_patch_RDD

from airflow_provider.spark.auto import seen_shuffles, watching
from airflow_provider.spark.auto.keeping import KeptShuffle
from airflow_provider.spark.auto.seen_shuffles import SeenShuffles
from airflow_provider.spark.auto.shuffle_identity import ShuffleIdentity
from airflow_provider.spark.auto.watching import Watcher
from airflow_provider.spark.jvm.exchanges import SHUFFLE_EXCHANGE, RunningQueries, kind, shuffles_of
from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.scala import items
from airflow_provider.spark.jvm.session_settings import active_session
from tests.spark.attempts import Attempts
from tests.spark.auto.gates import Gate, running
from tests.spark.auto.watched import EVERYTHING, auto_attempt, configured, job_group, jobs_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROUNDS = 4
SETTINGS = (
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": "3",
    },
    {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
    },
)


def queries(session: SparkSession, orders: Path, number: int) -> list[DataFrame]:
    """Queries that ask for the session's settings while they run; no two rounds share a plan."""
    from pyspark.sql import functions as F

    df = session.read.parquet(str(orders)).withColumn("amount", F.col("amount") + number)
    day = F.date_format((F.col("amount") * 3600).cast("timestamp"), "yyyy-MM-dd HH")
    totals = df.groupBy("customer", day.alias("day")).agg(F.sum(F.expr("try_cast(amount AS int)")).alias("total"))
    return [
        totals.orderBy("day", "customer"),
        totals.join(df.groupBy("customer").agg(F.avg("amount").alias("mean")), "customer").orderBy("mean", "day"),
    ]


def run(session: SparkSession, orders: Path, number: int) -> list[Any]:
    return [[tuple(row) for row in df.collect()] for df in queries(session, orders, number)]


def side_by_side(spark: SparkSession, orders: Path, label: str) -> tuple[list[Any], list[int]]:
    """Both sessions at once, each with its own settings; returns rows and numbers of jobs."""
    sessions = [spark.newSession() for _ in SETTINGS]
    _monkey_patch_RDD(spark)  # PySpark gives RDD.toDF to the newest session; other tests want it back
    for session, settings in zip(sessions, SETTINGS, strict=True):
        for name, value in settings.items():
            session.conf.set(name, value)

    def rounds(which: int) -> list[Any]:
        sessions[which].sparkContext.setJobGroup(f"{label}-{which}", label)
        return [run(sessions[which], orders, number) for number in range(ROUNDS)]

    from pyspark.util import inheritable_thread_target

    # A target for each thread: what one target gives to several threads is one set of properties, job group included.
    targets = [inheritable_thread_target(partial(rounds, which)) for which in range(2)]
    with ThreadPoolExecutor(2) as pool:
        rows = [future.result() for future in [pool.submit(target) for target in targets]]
    return rows, [jobs_of(spark, f"{label}-{which}") for which in range(2)]


def test_a_query_that_spark_has_not_announced_is_not_looked_at(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Spark knows the number of a query before it has made its plan; to ask for the plan then would make it."""
    unannounced = 2**40
    with auto_attempt(attempts, spark) as first:
        queries = first.application._queries
        execution = spark.read.parquet(str(orders)).groupBy("customer").count()._jdf.queryExecution()
        queries._by_id.put(unannounced, execution)
        try:
            assert unannounced not in dict(queries.started())
        finally:
            queries._by_id.remove(unannounced)


def test_the_session_of_a_query_is_active_while_its_plan_is_looked_at(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a plan makes when it is asked for its canonical form or its types, it makes with the settings that are its
    own, not those of another session; the looking thread gets its own session back.
    """
    found, search, identify = list[Any](), shuffles_of, ShuffleIdentity.of

    def active() -> Any:
        return spark._jvm.SparkSession.getActiveSession().get()  # type: ignore[union-attr]

    monkeypatch.setattr(seen_shuffles, "shuffles_of", lambda *rest: found.append(active()) or search(*rest))
    monkeypatch.setattr(ShuffleIdentity, "of", lambda *rest: found.append(active()) or identify(*rest))
    other = spark.newSession()
    _monkey_patch_RDD(spark)  # see side_by_side
    with auto_attempt(attempts, spark) as first, active_session(spark):
        df = other.read.parquet(str(orders)).groupBy("customer").sum("amount")
        df.collect()
        assert first.keep(df) == ["shuffle(customer)"]
        assert active().equals(spark._jsparkSession)
    assert len(found) >= 2
    assert all(session.equals(other._jsparkSession) for session in found)


@contextmanager
def watched_closely(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watcher]:
    """A watcher that looks without a pause, and keeps everything."""
    monkeypatch.setattr(watching, "_PAUSE", 0)
    monkeypatch.setattr(watching, "_SHARE", 0)
    attempts.options = dict(EVERYTHING)
    with attempts.attempt() as context:
        watcher = Watcher(context)
        with watcher.looking():
            yield watcher
            application = watcher.application()
            assert application is not None
            wait_until(lambda: any(v.sealed for v in application.registry.vertices.values()), "something is kept")


@pytest.mark.integration
def test_a_watcher_at_its_fastest_changes_no_row_and_starts_no_job(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions with opposite settings, looked at all the time: rows, their order and jobs are plain Spark's."""
    plain, jobs = side_by_side(spark, orders, "plain")
    nobodys = jobs_of(spark, None)
    with watched_closely(attempts, monkeypatch):
        watched, watched_jobs = side_by_side(spark, orders, "watched")
    assert watched == plain
    assert watched_jobs == jobs
    assert jobs_of(spark, None) == nobodys


def test_looks_that_fail_do_not_end_the_watching(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM that is too busy, one time-out of the listener bus, say, is asked again, and shuffles are kept."""
    look, failed = SeenShuffles.look, list[SeenShuffles]()

    def busy(application: SeenShuffles) -> None:
        if len(failed) < 4:
            failed.append(application)
            raise TimeoutError("The event queue is not empty after 10000 ms.")
        look(application)

    monkeypatch.setattr(SeenShuffles, "look", busy)
    with watched_closely(attempts, monkeypatch):
        run(spark, orders, 0)
    assert len(failed) == 4


def test_a_shuffle_that_cannot_be_looked_at_is_left_alone(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may have forgotten its stage. The other shuffles are kept all the same, and the log says why it is not."""
    look = KeptShuffle.look

    def forgotten(shuffle: KeptShuffle, available: int) -> None:
        if shuffle._title == "shuffle(amount)":
            raise LookupError("no stage 7")
        look(shuffle, available)

    monkeypatch.setattr(KeptShuffle, "look", forgotten)
    with auto_attempt(attempts, spark) as first:
        frames = [spark.read.parquet(str(orders)).groupBy(key).count() for key in ("amount", "customer")]
        for df in frames:
            df.collect()
            first.see(df)
        assert first.keep(frames[0]) == ["shuffle(customer)"]
        assert "it cannot be looked at: LookupError: no stage 7" in first.skipped()


def test_plans_are_searched_only_for_what_may_be_worth_it(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search takes hundreds of requests to the JVM: none is made for shuffles whose tasks cannot have taken as long
    as it costs to keep one.
    """
    searched = list[Any]()
    search = shuffles_of
    monkeypatch.setattr(seen_shuffles, "shuffles_of", lambda plan, *rest: searched.append(plan) or search(plan, *rest))
    for budget in ("1e-6", "1e9"):
        attempts.options = {"overhead_budget": budget}
        with auto_attempt(attempts, spark) as attempt:
            df = spark.read.parquet(str(orders)).groupBy("customer").sum("amount")
            df.collect()
            kept = attempt.keep(df)
        assert (kept, bool(searched)) == (([], False) if budget == "1e-6" else (["shuffle(customer)"], True))


def test_a_shuffle_that_no_plan_shows_is_looked_for_less_and_less() -> None:
    """Each time after twice as many looks, and then no more: it is an RDD's."""
    shuffle, due = seen_shuffles._Unseen(0.0), []
    for look in range(100):
        shuffle.looks = look
        due += [look] if shuffle.due else []
    assert due == [0, 1, 2, 4, 8, 16]


def test_a_shuffle_of_a_query_that_is_over_is_not_looked_for() -> None:
    """Its plan is out of reach, and the plans of the queries that run now do not show it."""
    shuffle = seen_shuffles._Unseen(0.0, frozenset({3, 4}))
    assert shuffle.may_be_of(frozenset({4, 5}))
    assert not shuffle.may_be_of(frozenset({5}))
    assert seen_shuffles._Unseen(0.0).may_be_of(frozenset({5})), "nobody knows whose it is"


def test_a_plan_is_asked_for_its_stages(spark: SparkSession, orders: Path) -> None:
    """The stages that adaptive execution lists are those of the whole plan: of subqueries, unions, below what is
    broadcast and what is used twice. Where a frame is cached, all of the plan is gone through.
    """
    frame = spark.read.parquet(str(orders))
    frame.createOrReplaceTempView("looked_at")
    totals = "SELECT customer, sum(amount) AS amount FROM looked_at GROUP BY customer"
    df = spark.sql(
        f"SELECT /*+ BROADCAST(b) */ a.customer, b.amount FROM ({totals}) a JOIN ({totals}) b USING (customer) "
        f"WHERE a.amount > (SELECT avg(amount) FROM ({totals})) "
        "UNION ALL SELECT customer, count(*) FROM looked_at GROUP BY customer"
    )
    df.collect()
    plan = df._jdf.queryExecution().executedPlan()
    listed = {found.number: found for found in shuffles_of(plan, spark, set())}
    cached = spark.range(3).cache()
    try:
        walked = {found.number: found for found in shuffles_of(plan, spark, set())}
    finally:
        cached.unpersist()
        spark.catalog.dropTempView("looked_at")
    assert len(listed) >= 3
    assert listed.keys() == walked.keys()
    for number, found in listed.items():
        assert found.exchange.equals(walked[number].exchange)
        assert found.canonical.equals(walked[number].canonical)
    assert not list(shuffles_of(plan, spark, set(listed)))


def test_a_look_does_not_wait_for_a_write(spark: SparkSession, orders: Path, tmp_path: Path) -> None:
    """Where a frame is cached, plans of running writes are gone through: a write runs inside a node of its plan, which
    Spark 3.5 locks until it is over.
    """
    from pyspark.sql import functions as F

    gate, cached, queries = Gate(tmp_path / "gate", waits="1"), spark.range(3).cache(), RunningQueries(spark)
    counts = spark.read.parquet(str(orders)).groupBy(F.expr("cast(customer AS string)").alias("customer")).count()
    df = counts.select("count", gate.passes(F.col("customer")).alias("passed"))

    def write(df: DataFrame) -> list[Any]:
        df.coalesce(1).write.parquet(str(tmp_path / "written"))
        return []

    def writing() -> Any:
        plans = [each.execution.executedPlan() for each in queries.started().values()]
        return plans[0] if any((tmp_path / "written").rglob("*.parquet")) else None

    try:
        with running(df, gate, write) as written:
            wait_until(writing, "its tasks run")
            with ThreadPoolExecutor(1) as pool:
                look = pool.submit(shuffles_of, writing(), spark, set())
                wait([look], 20)
                over = look.done() and not written.done()
                gate.open()
            assert [found.number for found in look.result()]
    finally:
        cached.unpersist()
    assert over


def test_what_is_not_made_yet_is_not_made_by_looking(
    spark: SparkSession, orders: Path, tmp_path: Path, attempts: Attempts
) -> None:
    """A range shuffle that waits for its bounds is looked at again and again, and still has no tasks and no job."""
    from pyspark.sql import functions as F

    gate = Gate(tmp_path / "gate", waits="1")
    settings = {"spark.sql.adaptive.enabled": "false"}  # the whole plan is there before anything runs
    with configured(spark, settings), auto_attempt(attempts, spark) as first:
        df = spark.read.parquet(str(orders)).where(gate.passes(F.expr("cast(amount as string)")))
        df = df.groupBy("customer").count().orderBy("count", "customer")
        with running(df, gate) as rows:
            wait_until(spark.sparkContext.statusTracker().getActiveJobsIds, "the bounds are sampled")
            plan = df._jdf.queryExecution().executedPlan()
            jobs = len(spark.sparkContext.statusTracker().getActiveJobsIds())
            for _ in range(20):
                first.application.look()
            (ranged,) = [
                node
                for node in nodes(plan)
                if kind(node) == SHUFFLE_EXCHANGE and "Range" in node.outputPartitioning().toString().title()
            ]
            made = private_field(ranged, "shuffleDependency")
            assert len(spark.sparkContext.statusTracker().getActiveJobsIds()) == jobs
            gate.open()
            assert len(rows.result()) == 300
        assert made is None


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


@pytest.mark.few(1)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_retry_starts_no_job_that_plain_spark_does_not(
    spark: SparkSession, orders: Path, attempts: Attempts, adaptive: str
) -> None:
    """A plan is filled without a job of its own: bounds of a range above are sampled when Spark does it, when the
    query has begun (trap 13).
    """
    from pyspark.sql import functions as F

    def query() -> DataFrame:
        df = spark.read.parquet(str(orders))
        return df.groupBy("customer").agg(F.sum("amount").alias("total")).orderBy("total", "customer")

    with configured(spark, {"spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            df = query()
            with job_group(spark, f"first-{adaptive}") as group:
                rows = df.collect()
            plain = jobs_of(spark, group)
            assert first.keep(df) == ["shuffle(customer)"]
        df = query()  # reads a footer
        nobodys = jobs_of(spark, None)
        with auto_attempt(attempts, spark) as second, job_group(spark, f"second-{adaptive}") as group:
            assert second.restore(df)
            assert second.put_back() == {"shuffle(customer)": 2}
            assert jobs_of(spark, group) == 0
            assert df.collect() == rows
        assert 0 < jobs_of(spark, group) <= plain
        assert jobs_of(spark, None) == nobodys


@pytest.mark.few(1)
@pytest.mark.parametrize("source", ["range", "files", "rows", "rdd"])
def test_a_look_uses_up_no_id_of_an_rdd(spark: SparkSession, attempts: Attempts, orders: Path, source: str) -> None:
    """Spark draws the bounds of a sort by chance, from the number of an RDD: a later sort of a first attempt has plain
    Spark's partitions only if no look has made an RDD.
    """
    sources: dict[str, Callable[[], DataFrame]] = {
        "range": lambda: spark.range(0, 400, 1, 3).withColumnRenamed("id", "customer"),
        "files": lambda: spark.read.parquet(str(orders)),
        "rows": lambda: spark.createDataFrame([(number,) for number in range(400)], "customer long"),
        "rdd": lambda: spark.createDataFrame(spark.sparkContext.parallelize(range(400), 3).map(lambda n: (n,))),
    }

    def next_id() -> int:
        return spark.sparkContext.parallelize([1]).id()

    attempts.options = {"source_version": "1"}
    with auto_attempt(attempts, spark, restores=False) as attempt:
        df = sources[source]()
        query = df.repartition(4, df.columns[0])
        query.collect()
        before = next_id()
        attempt.keep(query)
        assert attempt.kept()
        assert next_id() == before + 1


@pytest.mark.few(1)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_recovery_uses_up_none_of_sparks_expression_ids(
    spark: SparkSession, attempts: Attempts, orders: Path, tmp_path: Path, adaptive: str
) -> None:
    """Spark orders parts of some plans by hashes of expression ids, which it counts up: the next plan of the script is
    plain Spark's only if no look of a first attempt, and nothing that a write passes on its way, has taken any.
    """
    from pyspark.sql import functions as F

    jvm: Any = spark._jvm

    def next_id() -> int:
        return int(jvm.org.apache.spark.sql.catalyst.expressions.NamedExpression.newExprId().id())

    def used(name: str, keep: Callable[[DataFrame], object]) -> list[int]:
        df = spark.read.parquet(str(orders)).withColumn("half", F.col("amount") / 2)
        totals = df.groupBy("customer").agg(F.countDistinct("amount"), F.avg("half"), F.max_by("amount", "half"))
        sums = df.groupBy("customer").agg(F.sum("half"))
        query = totals.join(sums, "customer").orderBy("customer").toDF("customer", "a", "b", "c", "d")
        numbers = [next_id()]
        query.collect()
        numbers.append(next_id())
        keep(query)
        numbers.append(next_id())
        query.write.parquet(str(tmp_path / name))
        numbers.append(next_id())
        return [after - before for before, after in pairwise(numbers)]

    with configured(spark, {"spark.sql.adaptive.enabled": adaptive}):
        plain = [used(name, lambda _: None) for name in ("first", "plain")]
        with auto_attempt(attempts, spark, restores=False) as attempt:
            recovered = used("recovered", attempt.keep)
            assert attempt.kept()
        assert recovered == plain[1]
