"""Shuffle files outlive their application: a retry puts them back, and Spark runs the other tasks only."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider.recovery.report import VertexReport
from airflow_provider.spark.auto.cost import Price
from airflow_provider.spark.context import RecoveryContext
from airflow_provider.spark.jvm.executors import executors
from airflow_provider.spark.jvm.map_stage import map_stages, plan_together
from airflow_provider.spark.map_output import LocalDirs
from tests.spark.attempts import Attempts, vertices
from tests.spark.auto.test_placing import automatic, many_tasks

__all__ = ["many_tasks"]  # a fixture

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("many_tasks", "nothing_else_is_stored")]


@pytest.fixture
def nothing_else_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point above a shuffle is too dear, so that all depends on the shuffle."""
    monkeypatch.setattr(Price, "too_dear", lambda *_, **__: "the test says so")


@pytest.fixture
def customers(tmp_path: Path) -> Path:
    """300 customers in 30 cities."""
    folder = tmp_path / "customers"
    folder.mkdir()
    for part in range(3):
        ids = range(part * 100, part * 100 + 100)
        table = pa.table({"customer": list(ids), "city": [f"city {i % 30}" for i in ids]})
        pq.write_table(table, folder / f"part-{part}.parquet")
    return folder


@pytest.fixture
def no_broadcast(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    yield
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def by_city(spark: SparkSession, orders: Path, customers: Path) -> DataFrame:
    joined = spark.read.parquet(str(orders)).join(spark.read.parquet(str(customers)), "customer")
    return joined.groupBy("city").agg(F.sum("amount").alias("total"), F.count("*").alias("n"))


def shuffles(context: RecoveryContext) -> dict[str, VertexReport]:
    return {name: report for name, report in vertices(context).items() if name.startswith("shuffle(")}


def tasks(spark: SparkSession) -> int:
    """How many tasks have run in this application."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]
    listed = spark.sparkContext._jsc.sc().statusStore().executorList(True)  # type: ignore[union-attr]
    return int(listed.apply(0).totalTasks())


def test_all_of_a_shuffle_survives(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """None of its tasks runs again, and the rows are the same."""
    query = spark.read.parquet(str(orders)).groupBy("customer").agg(F.sum("amount").alias("total"))
    expected = sorted(query.collect())
    with automatic(attempts) as context:
        assert sorted(query.select("*").collect()) == expected
        (first,) = shuffles(context).values()
        assert first.computed == first.partitions >= 16
    before = tasks(spark)
    with automatic(attempts) as context:
        assert sorted(query.select("*").collect()) == expected
        (again,) = shuffles(context).values()
        assert again.reused == first.partitions
    assert tasks(spark) - before < first.partitions


@pytest.mark.usefixtures("no_broadcast")
def test_both_sides_of_a_join_survive(spark: SparkSession, orders: Path, customers: Path, attempts: Attempts) -> None:
    """Each under its own name; adaptive execution is told how much they hold, so no side is taken for empty."""
    expected = sorted(by_city(spark, orders, customers).collect())
    for attempt in (1, 2):
        with automatic(attempts) as context:
            assert sorted(by_city(spark, orders, customers).collect()) == expected
            found = shuffles(context)
            assert sorted(found) == ["shuffle(city)", "shuffle(customer)", "shuffle(customer)#2"]
            assert all(report.reused + report.computed == report.partitions for report in found.values())
            assert all(report.reused == (report.partitions if attempt == 2 else 0) for report in found.values())


@pytest.mark.usefixtures("no_broadcast")
def test_a_shuffle_above_a_join_survives(
    spark: SparkSession, orders: Path, customers: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """What goes into it was too dear to store, but is known for what it is and how it is cut."""
    file = tmp_path / "cities.parquet"
    pq.write_table(pa.table({"city": [f"city {i}" for i in range(30)], "land": [i % 4 for i in range(30)]}), file)
    cities = spark.read.parquet(str(file))
    joined = spark.read.parquet(str(orders)).join(spark.read.parquet(str(customers)), "customer").join(cities, "city")
    totals = joined.groupBy("land").agg(F.sum("amount").alias("total"))
    expected = sorted(totals.collect())
    for attempt in (1, 2):
        with automatic(attempts) as context:
            assert sorted(totals.select("*").collect()) == expected
            found = shuffles(context)
            assert len([name for name in found if name.startswith("shuffle(city)")]) == 2, "the join's, and the cities'"
            assert len([name for name in found if name.startswith("shuffle(customer)")]) == 2
            assert all(report.reused == (report.partitions if attempt == 2 else 0) for report in found.values())


@pytest.mark.usefixtures("no_broadcast")
def test_a_join_that_is_only_written(
    spark: SparkSession, orders: Path, customers: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """Its shuffles are kept, and the script's number of files and order of rows are what they were."""
    joined = spark.read.parquet(str(orders)).join(spark.read.parquet(str(customers)), "customer")
    written = {
        "plain": joined,
        "spread": joined.repartition(3, "city"),
        "sorted": joined.repartition(2, "city").sortWithinPartitions("amount", "customer"),
    }
    for name, frame in written.items():
        frame.write.parquet(f"{tmp_path}/expected/{name}")
    for attempt in (1, 2):
        with automatic(attempts, sinks="repeat") as context:
            for name, frame in written.items():
                target = f"{tmp_path}/{attempt}/{name}"
                frame.write.parquet(target)
                files = [sorted(Path(at).glob("*.parquet")) for at in (target, tmp_path / "expected" / name)]
                rows, expected = ([pq.read_table(file).to_pylist() for file in found] for found in files)
                assert sorted(map(str, chain(*rows))) == sorted(map(str, chain(*expected)))
                if name != "plain":
                    assert [len(part) for part in rows] == [len(part) for part in expected]
                if name == "sorted":
                    assert all(part == sorted(part, key=lambda r: (r["amount"], r["customer"])) for part in rows)
            found = shuffles(context)
            assert len(found) >= 2
            assert all(report.reused == (report.partitions if attempt == 2 else 0) for report in found.values())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("no_broadcast")
def test_what_is_lost_of_a_shuffle_is_computed(
    spark: SparkSession, orders: Path, customers: Path, attempts: Attempts, seed: int
) -> None:
    """Whichever map outputs are gone, or damaged: those tasks run, no others, and the rows are the same."""
    rng = random.Random(seed)
    expected = sorted(by_city(spark, orders, customers).collect())
    with automatic(attempts):
        assert sorted(by_city(spark, orders, customers).collect()) == expected
    stored = sorted(attempts.folder.rglob("*.shuffle"))
    lost = rng.sample(stored, rng.randint(1, len(stored)))
    for file in lost:
        if rng.random() < 0.5:
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-1] + b"?")
    with automatic(attempts) as context:
        assert sorted(by_city(spark, orders, customers).collect()) == expected
        assert sum(report.computed for report in shuffles(context).values()) == len(lost)
        assert sum(report.reused for report in shuffles(context).values()) == len(stored) - len(lost)
    with automatic(attempts) as context:
        assert sorted(by_city(spark, orders, customers).collect()) == expected
        assert sum(report.reused for report in shuffles(context).values()) == len(stored)


@pytest.mark.usefixtures("no_broadcast")
def test_the_next_plan_of_an_action_goes_on_with_the_files_that_are_there(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Two branches of a plan stand on the same shuffle: its tasks run once, and nothing is read back."""
    totals = spark.read.parquet(str(orders)).groupBy("customer").agg(F.sum("amount").alias("total"))
    few, many = totals.where("total < 900").withColumnRenamed("total", "few"), totals.where("total > 100")
    joined = few.join(many, few.few % 97 == many.total % 97).groupBy("few").count()
    expected = sorted(joined.collect())
    for attempt in (1, 2):
        before = tasks(spark)
        with automatic(attempts) as context:
            assert sorted(joined.select("*").collect()) == expected
            found = {name: each for name, each in shuffles(context).items() if name.startswith("shuffle(customer)")}
            assert len(found) == 1
            assert all(each.reused == (each.partitions if attempt == 2 else 0) for each in found.values())
            assert context.live.held == [], "what has run is given back when the action is over"
        if attempt == 1:
            (once,) = (each.partitions for each in found.values())
            assert tasks(spark) - before < 2 * once


@pytest.mark.usefixtures("no_broadcast")
def test_a_place_that_is_not_worth_storing_costs_no_shuffle(
    spark: SparkSession, orders: Path, customers: Path, attempts: Attempts
) -> None:
    """Two joins on the same key shuffle each table once, as in plain Spark, though a place between them was tried."""
    told = spark.read.parquet(str(orders))
    joined = told.where("amount > 3").join(told.where("amount < 900").select("customer"), "customer", "left_semi")
    query = joined.join(spark.read.parquet(str(customers)), "customer").groupBy("city").agg(F.count("*").alias("n"))
    expected = sorted(query.collect())
    for attempt in (1, 2):
        with automatic(attempts) as context:
            assert sorted(query.select("*").collect()) == expected
            assert "join input(Join leftsemi)" in {skip.name for skip in context.master.graph.newest.skipped}
            found = {name: each for name, each in shuffles(context).items() if "customer" in name}
            assert len(found) == 3
            assert all(each.reused == (each.partitions if attempt == 2 else 0) for each in found.values())


@pytest.mark.usefixtures("no_broadcast")
def test_actions_of_threads(spark: SparkSession, orders: Path, customers: Path, attempts: Attempts) -> None:
    """Shuffles survive, too, whose action a thread of the script's own has started, where Spark knows no session."""
    expected = sorted(by_city(spark, orders, customers).collect())

    def in_thread() -> list[Row]:
        assert not spark._jvm.SparkSession.getActiveSession().isDefined()
        found = sorted(by_city(spark, orders, customers).collect())
        assert not spark._jvm.SparkSession.getActiveSession().isDefined()
        return found

    for attempt in (1, 2):
        with automatic(attempts) as context, ThreadPoolExecutor(2) as pool:
            assert [told.result() for told in [pool.submit(in_thread) for _ in range(2)]] == [expected] * 2
            found = shuffles(context)
            assert len([name for name in found if name.startswith("shuffle(customer)")]) >= 2
            assert all(report.reused == (report.partitions if attempt == 2 else 0) for report in found.values())


@pytest.mark.usefixtures("no_broadcast")
def test_what_several_shuffles_broadcast_is_computed_once(
    spark: SparkSession, orders: Path, customers: Path, attempts: Attempts
) -> None:
    """Both inputs of a join are joined with the same small table, and the next attempt knows both shuffles again."""
    spark.read.parquet(str(orders)).createOrReplaceTempView("orders")
    spark.read.parquet(str(customers)).createOrReplaceTempView("customers")
    query = """
        WITH told AS (SELECT /*+ BROADCAST(c) */ * FROM orders JOIN customers c USING (customer))
        SELECT a.city, min(b.city) AS n FROM (SELECT customer, min(city) AS city FROM told GROUP BY 1) a
        JOIN (SELECT customer + 0 AS other, city FROM told WHERE amount > 3) b ON a.customer = b.other GROUP BY a.city
    """
    stages = map_stages(spark.sql(query))
    assert len(plan_together(spark, stages)) == len(stages) == 2
    planned = "\n".join(str(stage._prepared.treeString()) for stage in stages)
    assert planned.count("BroadcastExchange") == 2, "one, and the name of it where it is reused"
    assert planned.count("ReusedExchange") == 1
    expected = sorted(spark.sql(query).collect())
    for attempt in (1, 2):
        with automatic(attempts) as context:
            assert sorted(spark.sql(query).collect()) == expected
            found = [each for name, each in shuffles(context).items() if "city" not in name]
            assert len(found) >= 2
            assert all(each.reused == (each.partitions if attempt == 2 else 0) for each in found)


def test_no_rows_stay_no_rows(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """A shuffle that holds nothing is put back, too; what is counted over it is 0."""
    query = spark.read.parquet(str(orders)).where("customer + amount < 0").groupBy("customer").count()
    for attempt in (1, 2):
        with automatic(attempts) as context:
            assert query.select("*").collect() == []
            (found,) = shuffles(context).values()
            assert found.reused == (found.partitions if attempt == 2 else 0)


def test_a_bug_above_a_shuffle_is_mended(
    spark: SparkSession, orders: Path, customers: Path, attempts: Attempts, no_broadcast: None
) -> None:
    """Another aggregate of the same join, which needs the same columns: both inputs are reused."""
    with automatic(attempts):
        by_city(spark, orders, customers).collect()
    joined = spark.read.parquet(str(orders)).join(spark.read.parquet(str(customers)), "customer")
    mended = joined.groupBy("city").agg(F.max("amount").alias("total"))
    expected = sorted(mended.collect())
    with automatic(attempts) as context:
        assert sorted(mended.select("*").collect()) == expected
        inputs = [each for name, each in shuffles(context).items() if name.startswith("shuffle(customer)")]
        assert len(inputs) == 2
        assert all(report.reused == report.partitions for report in inputs)


@pytest.mark.parametrize("change", ["keys", "source", "reducers"])
def test_another_shuffle_is_not_mistaken(
    spark: SparkSession, orders: Path, tmp_path: Path, attempts: Attempts, change: str
) -> None:
    """Other keys, other rows or another number of reducers: nothing is reused."""
    source = tmp_path / "source"
    source.mkdir()
    for file in orders.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    with automatic(attempts) as context:
        spark.read.parquet(str(source)).groupBy("customer").count().collect()
        assert all(report.computed for report in shuffles(context).values())
    key = "amount" if change == "keys" else "customer"
    if change == "source":
        pq.write_table(pa.table({"customer": [1], "amount": [1]}), source / "part-9.parquet")
    if change == "reducers":
        spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        expected = sorted(spark.read.parquet(str(source)).groupBy(key).count().collect())
        with automatic(attempts) as context:
            assert sorted(spark.read.parquet(str(source)).groupBy(key).count().collect()) == expected
            assert sum(report.reused for report in shuffles(context).values()) == 0
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "4")


QUERIES = [
    "SELECT customer, sum(amount) AS x FROM orders GROUP BY customer",
    "SELECT customer, sum(amount * 2) AS x FROM orders GROUP BY customer",
    "SELECT customer, sum(amount + customer) AS x FROM orders GROUP BY customer",
    "SELECT customer, sum(customer) AS x FROM orders GROUP BY customer",
    "SELECT customer, max(amount) AS x FROM orders GROUP BY customer",
    "SELECT customer, min(amount) AS x FROM orders GROUP BY customer",
    "SELECT customer, count(*) AS x FROM orders GROUP BY customer",
    "SELECT customer, count(DISTINCT amount) AS x FROM orders GROUP BY customer",
    "SELECT customer, count(amount) FILTER (WHERE amount > 50) AS x FROM orders GROUP BY customer",
    "SELECT customer, sum(amount) AS x FROM orders WHERE amount > 5 GROUP BY customer",
    "SELECT customer, sum(amount) AS x FROM orders WHERE amount > 50 GROUP BY customer",
    "SELECT amount AS customer, sum(customer) AS x FROM orders GROUP BY amount",
    "SELECT customer + 1 AS customer, sum(amount) AS x FROM orders GROUP BY customer + 1",
    "SELECT a.customer, sum(b.amount) AS x FROM orders a JOIN orders b ON a.customer = b.amount GROUP BY a.customer",
    "SELECT a.customer, sum(b.amount) AS x FROM orders a JOIN orders b ON a.amount = b.customer GROUP BY a.customer",
    "SELECT a.customer, sum(a.amount) AS x FROM orders a LEFT ANTI JOIN orders b ON a.customer = b.amount GROUP BY 1",
    "SELECT sum(amount) AS x FROM orders",
    "SELECT sum(amount * 2) AS x FROM orders",
    "SELECT max(amount) AS x FROM orders",
]


@pytest.mark.usefixtures("no_broadcast")
def test_queries_that_are_nearly_alike(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """All of them keep their shuffles in one store, and none takes another's for its own: all rows are right, twice."""
    spark.read.parquet(str(orders)).createOrReplaceTempView("orders")
    expected = [sorted(spark.sql(query).collect()) for query in QUERIES]
    for attempt in (1, 2):
        with automatic(attempts) as context:
            assert [sorted(spark.sql(query).collect()) for query in QUERIES] == expected
            found = shuffles(context)
            assert len(found) >= 15, "most have one of their own"
            if attempt == 2:
                assert all(report.reused == report.partitions for report in found.values())


def test_a_shuffle_that_is_spread_by_chance_is_left_alone(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Round robin and sampled ranges: another run would spread the rows otherwise."""
    with automatic(attempts) as context:
        spark.read.parquet(str(orders)).repartition(3).groupBy("customer").count().collect()
        spark.read.parquet(str(orders)).repartitionByRange(3, "amount").groupBy("customer").count().collect()
        assert shuffles(context) == {}


def test_whatever_goes_wrong_the_plan_runs(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report says why shuffle files are not kept."""

    def fail(*_: object) -> None:
        raise AttributeError("another Spark has no such thing")

    monkeypatch.setattr("airflow_provider.spark.shuffles.map_stages", fail)
    with automatic(attempts) as context:
        assert spark.read.parquet(str(orders)).groupBy("customer").count().count() == 300
        assert context.master.graph.newest is not None
        reasons = [skip.reason for skip in context.master.graph.newest.skipped]
        assert any("another Spark has no such thing" in reason for reason in reasons)


def test_files_lie_where_spark_looks_for_them(spark: SparkSession) -> None:
    """The block manager and :class:`LocalDirs` name the same place."""
    manager = spark._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    dirs = LocalDirs(tuple(str(path) for path in manager.localDirsString()), manager.subDirsPerLocalDir())
    for name in ("shuffle_0_0_0.data", "shuffle_12_1099511627776_0.index", "shuffle_3_4711_0.data"):
        assert str(dirs.file(name)) == str(manager.getFile(name).getPath())


def test_a_local_master_has_one_executor(spark: SparkSession) -> None:
    """The driver."""
    assert [executor for executor, _ in executors(spark)] == ["driver"]


def test_sizes_reach_the_jvm_as_they_are(spark: SparkSession) -> None:
    """Longs in an array that is filled in one call."""
    array = spark.sparkContext._gateway.new_array(spark._jvm.long, 3)  # type: ignore[union-attr]
    packed = struct.pack(">3q", 1, 2**40, 0)
    spark._jvm.java.nio.ByteBuffer.wrap(packed).asLongBuffer().get(array)
    assert list(array) == [1, 2**40, 0]
