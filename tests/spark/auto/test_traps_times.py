"""Which time of a shuffle is which, where its tasks ask something outside: a time that went unseen shifts no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from airflow_provider.spark.auto.actions import noted_rdds
from airflow_provider.spark.auto.keeping import KeptShuffle
from airflow_provider.spark.auto.seen_shuffles import SeenShuffles
from airflow_provider.spark.auto.shuffle_identity import NotKept
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.jvm import occurrences
from airflow_provider.spark.jvm.ended_queries import EndedQueries
from airflow_provider.spark.jvm.reflection import private_field
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import AutoAttempt, auto_attempt, configured
from tests.spark.auto.worlds import Oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MAY_CHANGE_ROWS = {"spark.sql.legacy.timeParserPolicy": "LEGACY"}


@pytest.fixture
def oracle(tmp_path: Path, spark: SparkSession, orders: Path) -> Oracle:
    return Oracle(tmp_path / "answer", spark, orders)


def unseen(oracle: Oracle, answer: str, by: str = "answer") -> list[str]:
    """A query that is over before anybody looks."""
    oracle.say(answer)
    return oracle.answers(by)


def seen(oracle: Oracle, attempt: AutoAttempt, answer: str, by: str = "answer") -> list[str]:
    """A query that is looked at until its shuffle is kept, if it may be."""
    oracle.say(answer)
    df = oracle.ask(by)
    rows = [row[0] for row in df.collect()]
    attempt.keep(df)
    return rows


def gone(attempt: AutoAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries that have ended are not held any more when they are looked at, as where there were too many."""
    with monkeypatch.context() as patched:
        patched.setattr(EndedQueries, "plan", lambda *_: None)
        attempt.application.settle()


def test_a_query_that_was_over_before_a_look_is_counted(
    spark: SparkSession, attempts: Attempts, oracle: Oracle
) -> None:
    """The script asks twice, and the first time was over before a look. A retry asks anew the first time, and has the
    second answer the second time.
    """
    with auto_attempt(attempts, spark) as first:
        assert unseen(oracle, "at first") == ["at first"]
        assert seen(oracle, first, "later") == ["later"]
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert oracle.answers()[0] in ("at first", "in the retry")
        assert oracle.answers() == ["later"]


def test_a_query_that_is_gone_before_a_look_shifts_nothing(
    spark: SparkSession, attempts: Attempts, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing but its end is known of the first time, no later time of it is kept, and the report says why."""
    with auto_attempt(attempts, spark) as first:
        assert unseen(oracle, "at first") == ["at first"]
        gone(first, monkeypatch)
        assert seen(oracle, first, "later") == ["later"]
        assert "its occurrence among equal shuffles is unknown" in first.skipped()
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert oracle.answers() == ["in the retry"]


def test_a_query_that_is_gone_is_no_other(
    spark: SparkSession, attempts: Attempts, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script with a short query that calls a function keeps what another one has shuffled."""
    with auto_attempt(attempts, spark) as first:
        assert unseen(oracle, "at first", by="other") == ["at first"]
        gone(first, monkeypatch)
        assert seen(oracle, first, "later") == ["later"]
        assert first.kept() == ["shuffle(answer)"]
    with auto_attempt(attempts, spark) as second:
        oracle.say("in the retry")
        assert oracle.answers(by="other") == ["in the retry"]
        gone(second, monkeypatch)
        assert oracle.answers() == ["later"]


def test_a_query_whose_settings_have_changed_shifts_nothing(
    spark: SparkSession, attempts: Attempts, oracle: Oracle
) -> None:
    """The script changes a setting when its first query is over, so that it cannot be told what that was."""
    with auto_attempt(attempts, spark) as first:
        assert unseen(oracle, "at first") == ["at first"]
        with configured(spark, MAY_CHANGE_ROWS):
            for _ in range(5):
                first.application.look()
        assert seen(oracle, first, "later") == ["later"]
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert oracle.answers() == ["in the retry"]


def test_a_query_that_was_found_and_left_alone_shifts_nothing(
    spark: SparkSession, attempts: Attempts, oracle: Oracle
) -> None:
    """The same if its shuffle was found while the setting was another one."""
    with auto_attempt(attempts, spark) as first:
        oracle.say("at first")
        df = oracle.ask()
        assert [row[0] for row in df.collect()] == ["at first"]
        first.see(df)
        with configured(spark, MAY_CHANGE_ROWS):
            for _ in range(5):
                first.application.look()
        assert "has changed since its query began" in first.skipped()
        assert seen(oracle, first, "later") == ["later"]
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert oracle.answers() == ["in the retry"]


@pytest.mark.few(1)
@pytest.mark.parametrize("held", [True, False], ids=["held", "gone"])
def test_what_is_not_put_back_is_counted(
    spark: SparkSession, attempts: Attempts, oracle: Oracle, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry comes to ``show``, into whose plan nothing is put back, and then to ``collect`` of the same, which is not
    given the rows that were kept of ``show``.
    """
    with auto_attempt(attempts, spark) as first:
        assert seen(oracle, first, "shown") == ["shown"]  # stands for show(), which a test cannot look at
        assert seen(oracle, first, "later") == ["later"]
        assert len(first.kept()) == 2
    with auto_attempt(attempts, spark) as second:
        oracle.say("in the retry")
        oracle.ask().show()
        if not held:
            gone(second, monkeypatch)
        assert oracle.answers() == (["later"] if held else ["in the retry"])


def fail(*_: Any) -> Any:
    raise ValueError("this look fails")


@pytest.mark.few(1)
@pytest.mark.parametrize("looks", ["_identify", "count", "look"])
def test_a_look_that_fails_shifts_nothing(
    spark: SparkSession, attempts: Attempts, oracle: Oracle, looks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All looks at the first query fail."""
    with auto_attempt(attempts, spark) as first:
        with monkeypatch.context() as patched:
            patched.setattr(KeptShuffle, looks, fail)
            assert seen(oracle, first, "at first") == ["at first"]
        assert seen(oracle, first, "later") == ["later"]
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert oracle.answers()[0] in ("at first", "in the retry")
        assert oracle.answers()[0] in ("later", "in the retry")


def test_what_one_attempt_has_lost_is_not_lost_for_the_next(spark: SparkSession) -> None:
    """A query with a function that was over before anybody listened is lost for who has begun before it alone."""
    queries = EndedQueries(spark)
    queries.detach()
    first = queries.next()
    spark.range(3).select(F.udf(lambda number: number, "long")("id")).collect()
    queries.attach(spark)
    try:
        assert queries.all_known(first, queries.next(), 20.0)
        assert queries.noted()[1]
        queries.detach()
        queries.attach(spark)
        assert not queries.noted()[1]
    finally:
        queries.detach()


def test_a_query_that_spark_does_not_announce_is_counted(
    spark: SparkSession, attempts: Attempts, oracle: Oracle
) -> None:
    """``df.rdd`` runs shuffles in no query of Spark's; it counts all the same."""

    def rows() -> list[str]:
        return [row[0] for row in oracle.ask().rdd.collect()]

    with auto_attempt(attempts, spark) as first, intercepted(noted_rdds(first.restorer._watcher)):
        oracle.say("at first")
        assert rows() == ["at first"]
        oracle.say("later")
        df = oracle.ask()
        assert [row[0] for row in df.rdd.collect()] == ["later"]
        for _ in range(30):
            first.application.look()
        assert first.kept()
    with auto_attempt(attempts, spark) as second, intercepted(noted_rdds(second.restorer._watcher)):
        oracle.say("in the retry")
        assert rows()[0] in ("at first", "in the retry")
        assert rows() == ["later"]


def listeners(bus: Any) -> list[str]:
    """The classes of the listeners of Spark's bus of events."""
    return [listener.getClass().getName() for listener in bus.listeners()]


def event_queues(spark: SparkSession) -> Any:
    """The queues of Spark's bus of events."""
    return private_field(spark.sparkContext._jsc.sc().listenerBus(), "queues")


def test_a_query_that_was_not_heard_of_shifts_nothing(
    spark: SparkSession, attempts: Attempts, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query of whose end nobody heard leaves all later times of whatever calls functions uncertain."""
    monkeypatch.setattr(occurrences, "_PATIENCE", 0.2)
    with auto_attempt(attempts, spark) as first:
        queues = event_queues(spark)
        (place,) = [place for place, queue in enumerate(queues) if queue.name() == "spark-recovery"]
        ours = queues[place]
        del queues[place]
        try:
            assert unseen(oracle, "at first") == ["at first"]
        finally:
            queues.append(ours)
        assert seen(oracle, first, "later") == ["later"]
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert oracle.answers() == ["in the retry"]


def test_a_script_finds_its_own_listeners_only(spark: SparkSession, attempts: Attempts, oracle: Oracle) -> None:
    """There are no other listeners than without us; and queries are counted behind one that the script has removed."""
    bus = spark.sparkContext._jsc.sc().listenerBus()
    spark.range(1).collect()
    plain = listeners(bus)
    with auto_attempt(attempts, spark) as first:
        assert unseen(oracle, "at first") == ["at first"]
        jvm: Any = spark._jvm
        own = jvm.org.apache.spark.scheduler.StatsReportListener()
        bus.addToSharedQueue(own)
        bus.removeListener(own)
        assert unseen(oracle, "again") == ["again"]
        assert seen(oracle, first, "later") == ["later"]
        assert listeners(bus) == plain
        first.context.occurrences.detach()
    assert all(queue.name() != "spark-recovery" for queue in event_queues(spark))
    with auto_attempt(attempts, spark):
        for answer in ("at first", "again"):
            oracle.say("in the retry")
            assert oracle.answers()[0] in (answer, "in the retry")
        assert oracle.answers() == ["later"]


def test_a_query_of_another_thread_is_counted(spark: SparkSession, attempts: Attempts, oracle: Oracle) -> None:
    """It makes no difference which thread of the script asks."""

    def asked(pool: ThreadPoolExecutor, answer: str) -> list[str]:
        return pool.submit(unseen, oracle, answer).result()

    with auto_attempt(attempts, spark) as first, ThreadPoolExecutor(1) as pool:
        assert asked(pool, "at first") == ["at first"]
        assert seen(oracle, first, "later") == ["later"]
    with auto_attempt(attempts, spark), ThreadPoolExecutor(1) as pool:
        assert asked(pool, "in the retry")[0] in ("at first", "in the retry")
        assert oracle.answers() == ["later"]


def test_a_query_beside_an_output_shifts_nothing(spark: SparkSession, attempts: Attempts, oracle: Oracle) -> None:
    """What ran unseen while another thread wrote an output may have been for that output, which a retry leaves out."""
    with auto_attempt(attempts, spark) as first:
        begun, ended = threading.Event(), threading.Event()

        def output() -> None:
            with first.context.purposes.serving("output"):
                begun.set()
                ended.wait()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(output)
            begun.wait()
            oracle.say("at first")
            oracle.ask().show()  # into whose plan nothing is put back: collect() itself says what it is for
            ended.set()
            writing.result()
        assert seen(oracle, first, "later") == ["later"]
        assert "its occurrence among equal shuffles is unknown" in first.skipped()
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert oracle.answers() == ["in the retry"]


def test_another_application_goes_on_counting(spark: SparkSession, attempts: Attempts, oracle: Oracle) -> None:
    """A script that stops Spark and starts it again has its times counted in all of its applications."""
    with auto_attempt(attempts, spark) as first:
        assert seen(oracle, first, "at first") == ["at first"]
        first.restorer._watcher._application = SeenShuffles(first.context, spark)  # as behind spark.stop()
        first.application = first.restorer._watcher._application
        assert seen(oracle, first, "later") == ["later"]
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert oracle.answers() == ["at first"]
        assert oracle.answers() == ["later"]


def test_a_version_of_spark_that_tells_less(
    spark: SparkSession, attempts: Attempts, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Spark does not say which queries have run, nothing whose tasks call functions is kept; all else is."""

    def no_member(*_: Any) -> None:
        raise NotKept("SparkListenerSQLExecutionEnd has no member qe")

    monkeypatch.setattr(occurrences, "EndedQueries", no_member)
    with auto_attempt(attempts, spark) as first:
        assert seen(oracle, first, "at first") == ["at first"]
        assert "SparkListenerSQLExecutionEnd has no member qe" in first.skipped()
        df = spark.range(100).selectExpr("id % 7 AS k").groupBy("k").count()
        df.collect()
        assert first.keep(df) == ["shuffle(k)"]


def test_queries_without_functions_cost_no_request(
    spark: SparkSession, attempts: Attempts, orders: Path, count_requests: Callable[[Callable[[], Any]], int]
) -> None:
    """However many queries have run that call no function, a look asks the same of the JVM."""
    with auto_attempt(attempts, spark) as first:
        before = count_requests(first.application.settle)
        for _ in range(5):
            spark.range(10).groupBy("id").count().collect()
        assert count_requests(first.application.settle) == before <= 2


@pytest.mark.integration
def test_a_shuffle_above_what_a_query_shares_is_counted(
    spark: SparkSession, attempts: Attempts, oracle: Oracle, orders: Path
) -> None:
    """The function stands below a stage that was made before, of which the plan has only a reference."""

    def asked_above() -> Any:
        asked = oracle.ask()
        return asked.union(asked).groupBy("count").agg({"answer": "max"}).select("max(answer)")

    def answers() -> list[str]:
        return [row[0] for row in asked_above().collect()]

    with auto_attempt(attempts, spark) as first:
        oracle.say("at first")
        assert answers() == ["at first"]
        oracle.say("later")
        df = asked_above()
        assert [row[0] for row in df.collect()] == ["later"]
        assert "shuffle(count)#2" in first.keep(df)
    with auto_attempt(attempts, spark):
        oracle.say("in the retry")
        assert answers()[0] in ("at first", "in the retry")
        assert answers() == ["later"]
