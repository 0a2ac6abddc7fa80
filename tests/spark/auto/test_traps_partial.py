"""Of a shuffle that was interrupted only the missing map tasks run, and only if nothing is mixed: traps 4, 5 and 8."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark.auto import cost
from airflow_provider.spark.auto.actions import noted_rdds
from airflow_provider.spark.auto.cost import CopyingCost
from airflow_provider.spark.auto.keeping import KeptShuffle
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.jvm.exchanges import shuffles_of
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker
from airflow_provider.spark.jvm.reflection import of_environment
from airflow_provider.spark.jvm.stage_metrics import StageMetricsReader
from airflow_provider.spark.local_dirs import LocalDirs
from airflow_provider.spark.shuffles.map_output import MapOutput, Written
from tests.spark.attempts import Attempts
from tests.spark.auto.gates import COLLECT, Collect, Gate, interrupted, running, store_what_is_there
from tests.spark.auto.watched import auto_attempt, configured, shuffle_numbers, tasks_run
from tests.support.parameters import each_value
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.auto.watched import AutoAttempt

pytestmark = pytest.mark.spark

UNIT = 80
"""Lines of the smallest file."""
LINE = 12
SIZES = {"a": 3, "b": 2, "c": 1}
ONE_CUT = {
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": str(5 * UNIT * LINE),
}
"""Two map tasks: one reads a and b, the other c."""
A_TASK_FOR_EACH_FILE = {**ONE_CUT, "spark.sql.files.openCostInBytes": str(5 * UNIT * LINE)}
"""Three map tasks, in the order of a, b and c."""
ANOTHER_CUT = {**ONE_CUT, "spark.sql.files.maxPartitionBytes": str(3 * UNIT * LINE)}
"""Two map tasks: one reads a, the other b and c."""
OTHER_CORES = {**ONE_CUT, "spark.sql.files.minPartitionNum": "2"}
"""The same, as if there were more cores."""


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Three files of exactly three, two and one units; each line has a key and the name of its file."""
    folder = tmp_path / "lines"
    folder.mkdir()
    for name, units in SIZES.items():
        (folder / f"{name}.csv").write_text("".join(f"{row:08},k{name}\n" for row in range(units * UNIT)))
        assert (folder / f"{name}.csv").stat().st_size == units * UNIT * LINE
    return folder


def read(spark: SparkSession, lines: Path) -> DataFrame:
    return spark.read.schema("key long, file string").csv(str(lines))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate", waits="kc")


def counted(spark: SparkSession, lines: Path, gate: Gate) -> DataFrame:
    return read(spark, lines).where(gate.passes(_file())).groupBy("key").count()


def collect_rdd(df: DataFrame) -> list[Any]:
    return df.rdd.collect()


COLLECTS: dict[str, Collect] = {"collect": COLLECT, "rdd": collect_rdd}
"""Action → how the rows of a query come to the driver."""


def stored_rows(attempt: AutoAttempt) -> dict[int, int]:
    """By index, how many rows the stored map outputs have."""
    vertices = attempt.application.registry.vertices.values()
    return {each.index: each.rows for vertex in vertices for each in vertex.stored.values()}


def _file() -> Any:
    from pyspark.sql import functions as F

    return F.col("file")


def test_only_the_missing_map_task_runs(spark: SparkSession, lines: Path, gate: Gate, attempts: Attempts) -> None:
    """A retry runs the map task whose output is missing, with Spark's own stage over its true child, and reduces."""
    with configured(spark, ONE_CUT):
        with auto_attempt(attempts, spark) as first:
            rows = interrupted(spark, first, gate, lambda: counted(spark, lines, gate))
            assert first.kept() == []
        with auto_attempt(attempts, spark) as second:
            again = counted(spark, lines, gate)
            found: list[Any] = []
            tasks = tasks_run(spark, lambda: found.extend(sorted(again.collect())))
            assert found == rows
            assert second.put_back() == {"shuffle(key)": 1}
            assert tasks == 2  # a map task, and the coalesced reducer


def test_what_a_frame_that_becomes_an_rdd_shuffles_is_kept_as_its_tasks_end(
    spark: SparkSession, lines: Path, gate: Gate, attempts: Attempts
) -> None:
    """No query counts its tasks, and Spark's store of running stages may say nothing of them."""
    with configured(spark, ONE_CUT):
        with auto_attempt(attempts, spark) as first, intercepted(noted_rdds(first.restorer._watcher)):
            rows = interrupted(spark, first, gate, lambda: counted(spark, lines, gate), collect_rdd)
        with auto_attempt(attempts, spark) as second, intercepted(noted_rdds(second.restorer._watcher)):
            assert sorted(collect_rdd(counted(spark, lines, gate))) == rows
            assert second.put_back() == {"shuffle(key)": 1}


@dataclass
class InTurn:
    """A query of three map tasks, each with a file of its own: those of the second and third file wait at gates."""

    spark: SparkSession
    lines: Path
    second: Gate
    third: Gate

    def query(self) -> DataFrame:
        passing = self.second.passes(_file()) & self.third.passes(_file())
        return read(self.spark, self.lines).where(passing).groupBy("key").count()

    def first_attempt(self, attempts: Attempts, collect: Collect = COLLECT) -> list[Any]:
        """Store the map output of the first file alone; return the query's rows."""
        with (
            auto_attempt(attempts, self.spark) as first,
            intercepted(noted_rdds(first.restorer._watcher)),
            running(self.query(), self.second, collect) as rows,
        ):
            store_what_is_there(self.spark, first)
            assert stored_rows(first) == {0: 3 * UNIT}
            self.third.open()
            self.second.open()
            return sorted(rows.result())


@pytest.fixture
def in_turn(spark: SparkSession, lines: Path, tmp_path: Path) -> Iterator[InTurn]:
    with configured(spark, A_TASK_FOR_EACH_FILE):
        yield InTurn(spark, lines, Gate(tmp_path / "second", waits="kb"), Gate(tmp_path / "third", waits="kc"))


@pytest.mark.few(1)
@each_value(action=[*COLLECTS])
def test_a_third_attempt_takes_what_the_second_has_added(
    spark: SparkSession, in_turn: InTurn, attempts: Attempts, action: str
) -> None:
    """Attempts that are killed in the same stage, one after the other, all bring it forward."""
    collect = COLLECTS[action]
    expected = in_turn.first_attempt(attempts, collect)
    in_turn.third.path.unlink()
    with auto_attempt(attempts, spark) as second, intercepted(noted_rdds(second.restorer._watcher)):
        with running(in_turn.query(), in_turn.third, collect) as rows:
            store_what_is_there(spark, second, outputs=2)
            in_turn.third.open()
            assert sorted(rows.result()) == expected
        assert second.put_back() == {"shuffle(key)": 1}
    with auto_attempt(attempts, spark) as third, intercepted(noted_rdds(third.restorer._watcher)):
        assert sorted(collect(in_turn.query())) == expected
        assert third.put_back() == {"shuffle(key)": 2}
        assert stored_rows(third) == {0: 3 * UNIT, 1: 2 * UNIT}


def test_the_missing_map_tasks_are_stored_with_their_own_counts(
    spark: SparkSession, in_turn: InTurn, attempts: Attempts
) -> None:
    """Spark numbers the tasks of a stage that runs in part from 0: what they count belongs to their partitions."""
    expected = in_turn.first_attempt(attempts)
    with auto_attempt(attempts, spark) as second:
        again = in_turn.query()
        assert sorted(again.collect()) == expected
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        second.see(again)
        second.look()
        assert stored_rows(second) == {index: units * UNIT for index, units in enumerate(SIZES.values())}


@pytest.mark.few(1)
@each_value(action=[*COLLECTS])
def test_what_the_missing_map_task_writes_is_kept_at_once(
    spark: SparkSession, lines: Path, gate: Gate, attempts: Attempts, action: str
) -> None:
    """Of a stage that a retry runs in part no counts come that are not there when it has run: nobody waits for any."""
    collect = COLLECTS[action]
    with configured(spark, ONE_CUT):
        with auto_attempt(attempts, spark) as first, intercepted(noted_rdds(first.restorer._watcher)):
            interrupted(spark, first, gate, lambda: counted(spark, lines, gate), collect)
        with auto_attempt(attempts, spark) as second, intercepted(noted_rdds(second.restorer._watcher)):
            df = counted(spark, lines, gate)
            collect(df)
            assert second.put_back() == {"shuffle(key)": 1}
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
            if action == "collect":
                second.see(df)
            for _ in range(3):
                second.application.look()
            assert second.kept() == ["shuffle(key)"]


def test_on_a_cluster_few_jobs_copy_map_outputs_of_one_stage(
    spark: SparkSession, in_turn: InTurn, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a first copy an unfinished stage rests for a while; once all its map outputs are there, they are stored."""
    monkeypatch.setattr(cost, "_COPY_EVERY", (3600.0, 3600.0))
    with auto_attempt(attempts, spark) as first, running(in_turn.query(), in_turn.second) as rows:
        first.application._tools.cores = None  # as on a cluster
        store_what_is_there(spark, first)
        in_turn.third.open()
        wait_until(lambda: 2 in first.application._tools.tracker.shuffles().values(), "two map outputs are there")
        first.look()
        assert stored_rows(first) == {0: 3 * UNIT}
        in_turn.second.open()
        rows.result()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        assert first.look() == ["shuffle(key)"]


def test_missing_map_tasks_that_are_not_worth_keeping_are_left_alone(
    spark: SparkSession, in_turn: InTurn, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listeners count no task of those that were put back; they are not asked again and again for that."""
    expected = in_turn.first_attempt(attempts)
    monkeypatch.setattr(CopyingCost, "too_high", lambda *_: "it would cost too much")
    with auto_attempt(attempts, spark) as second:
        again = in_turn.query()
        assert sorted(again.collect()) == expected
        assert second.put_back() == {"shuffle(key)": 1}
        second.see(again)
        second.look()
        monkeypatch.setattr(StageMetricsReader, "read", lambda *_: pytest.fail("it is looked at for ever"))
        second.look()
        assert second.kept() == []


def test_a_look_while_map_outputs_are_put_back_disturbs_nothing(
    spark: SparkSession, lines: Path, gate: Gate, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry may see a shuffle before it has put back what survived of it. What its tasks add is kept all the same."""
    with configured(spark, ONE_CUT):
        with auto_attempt(attempts, spark) as first, intercepted(noted_rdds(first.restorer._watcher)):
            interrupted(spark, first, gate, lambda: counted(spark, lines, gate), collect_rdd)
        with auto_attempt(attempts, spark) as second, intercepted(noted_rdds(second.restorer._watcher)):

            def look_and_register(tracker: MapOutputTracker, number: int, *arguments: Any) -> None:
                second.application.look()
                register(tracker, number, *arguments)
                second.application.look()

            register = MapOutputTracker.register
            monkeypatch.setattr(MapOutputTracker, "register", look_and_register)
            df = counted(spark, lines, gate)
            assert len(df.rdd.collect()) == 3 * UNIT
            assert second.put_back() == {"shuffle(key)": 1}
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
            assert second.look() == ["shuffle(key)"]
            assert sorted(stored_rows(second).values()) == [UNIT, 3 * UNIT]


ABOVE: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "aggregate": (lambda df: df.groupBy("key").count(), "kc"),
    "limit": (lambda df: df.repartition(4, "key").limit(100), "kc"),
    "limit of more rows than the missing task writes": (lambda df: df.repartition(4, "key").limit(100), ""),
    "join": (lambda df: df.repartition(4, "key").join(df.groupBy("key").count(), "key"), "kc"),
}
"""Name → what stands above the interrupted shuffle, and of which file no row passes."""


@pytest.mark.few(1)
@each_value(case=[*ABOVE], adaptive=["true", "false"])
def test_a_missing_map_task_may_write_few_rows_or_none(
    spark: SparkSession, lines: Path, tmp_path: Path, attempts: Attempts, case: str, adaptive: str
) -> None:
    """The rows of what was put back count, so that Spark takes no shuffle for an empty one and drops no limit."""
    above, dropped = ABOVE[case]
    gate = Gate(tmp_path / "gate", waits="kc", dropped=dropped)

    def make() -> DataFrame:
        return above(read(spark, lines).where(gate.passes(_file())))

    with configured(spark, {**ONE_CUT, "spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            rows = interrupted(spark, first, gate, make)
            assert rows
        with auto_attempt(attempts, spark) as second:
            again = sorted(make().collect())
            assert second.put_back()
            assert len(again) == len(rows)
            assert again == rows or "limit" in case  # which rows, Spark leaves open


def test_map_outputs_without_counts_are_not_put_back_alone(
    spark: SparkSession, lines: Path, gate: Gate, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task whose rows Spark has not said, the output counts only where its shuffle is complete."""
    monkeypatch.setattr(KeptShuffle, "_counts_of", lambda self, status: Written(checksum=status.checksum))
    with configured(spark, ONE_CUT):
        with auto_attempt(attempts, spark) as first:
            rows = interrupted(spark, first, gate, lambda: counted(spark, lines, gate))
        with auto_attempt(attempts, spark) as second:
            assert sorted(counted(spark, lines, gate).collect()) == rows
            assert second.put_back() == {}


@pytest.mark.parametrize(
    "retry",
    [
        pytest.param(ANOTHER_CUT, id="maxPartitionBytes"),
        pytest.param(OTHER_CORES, id="cores", marks=pytest.mark.integration),
    ],
)
def test_map_outputs_of_another_cut_are_not_mixed(
    spark: SparkSession, lines: Path, gate: Gate, attempts: Attempts, retry: Mapping[str, str]
) -> None:
    """As many map tasks that read other files: nothing is put back, so no row is doubled or lost."""
    with configured(spark, ONE_CUT), auto_attempt(attempts, spark) as first:
        rows = interrupted(spark, first, gate, lambda: counted(spark, lines, gate))
    with configured(spark, retry), auto_attempt(attempts, spark) as second:
        again = counted(spark, lines, gate)
        assert read(spark, lines).rdd.getNumPartitions() == 2
        assert sorted(again.collect()) == rows
        assert second.put_back() == {}


def test_files_in_another_order_are_not_mixed(spark: SparkSession, tmp_path: Path, attempts: Attempts) -> None:
    """Two files of one size, named the other way round: each map task reads the other file."""
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for file, name in zip(files, ("ka", "kc"), strict=True):
        file.write_text("".join(f"{row:08},{name}\n" for row in range(UNIT)))
    gate = Gate(tmp_path / "gate", waits="kc")

    def make(paths: list[Path]) -> DataFrame:
        df = spark.read.schema("key long, file string").csv([str(path) for path in paths])
        return df.where(gate.passes(_file())).groupBy("key", "file").count()

    with configured(spark, {**ONE_CUT, "spark.sql.files.maxPartitionBytes": str(UNIT * LINE)}):
        with auto_attempt(attempts, spark) as first:
            rows = interrupted(spark, first, gate, lambda: make(files))
        with auto_attempt(attempts, spark):
            assert sorted(make(files[::-1]).collect()) == rows


@pytest.mark.few(1)
@pytest.mark.parametrize("reads", ["equal", "other"])
def test_reads_of_other_reducers_are_not_mixed(
    spark: SparkSession, lines: Path, tmp_path: Path, attempts: Attempts, reads: str
) -> None:
    """As many map tasks, but adaptive execution gives them other reducers of the shuffle below: nothing is put back."""
    from pyspark.sql import functions as F

    gate = Gate(tmp_path / "gate", waits="last")

    def by_key() -> DataFrame:
        return read(spark, lines).groupBy("key").count()

    def query() -> DataFrame:
        last = F.expr("if(count > 0 AND pmod(hash(key), 4) = 3, 'last', 'others')")  # not below the shuffle of the keys
        return by_key().where(gate.passes(last)).groupBy("count").agg(F.count("*").alias("keys"))

    def coalesced(size: int) -> Mapping[str, str]:
        return {
            **ONE_CUT,
            "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
            "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1",
            "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(size),
        }

    with configured(spark, ONE_CUT):
        one, two, three, four = reducer_sizes(spark, by_key())
    in_halves, first_three = max(one + two, three + four), one + two + three
    assert in_halves < first_three
    with (
        configured(spark, coalesced(in_halves)),
        auto_attempt(attempts, spark) as first,
        running(query(), gate) as rows,
    ):

        def stored() -> list[int]:
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
            first.application.look()
            vertices = first.application.registry.vertices.values()
            return [index for vertex in vertices if vertex.name == "shuffle(count)" for index in vertex.stored]

        wait_until(stored, "the map output of the first two reducers is stored")
        assert stored() == [0]
        gate.open()
        expected = sorted(rows.result())
    again = query()
    with (
        configured(spark, coalesced(in_halves if reads == "equal" else first_three)),
        auto_attempt(attempts, spark) as second,
    ):
        assert sorted(again.collect()) == expected
        assert MapOutputTracker(spark).shuffles()[shuffle_numbers(spark, again)[-1]] == 2
        assert second.put_back().get("shuffle(count)", 0) == (1 if reads == "equal" else 0)


def reducer_sizes(spark: SparkSession, df: DataFrame) -> list[int]:
    """Bytes for each reducer of the only shuffle of a query, which is run for that."""
    df.collect()
    (shuffle,) = shuffles_of(df._jdf.queryExecution().executedPlan(), spark, set())
    return list(MapOutputTracker(spark).statistics(shuffle.dependency).bytesByPartitionId())


def test_a_task_that_spark_has_run_again_is_stored_again(
    spark: SparkSession, lines: Path, gate: Gate, attempts: Attempts
) -> None:
    """A shuffle is sealed only when every stored map output is the one that reducers read (two stage attempts)."""
    with configured(spark, ONE_CUT), auto_attempt(attempts, spark) as first:
        with running(counted(spark, lines, gate), gate) as rows:
            store_what_is_there(spark, first)
            gate.open()
            rows.result()
        ((number, vertex),) = first.application.registry.vertices.items()
        ((index, task),) = vertex.tasks.items()
        _run_again(spark, number, index, task, 7777)
        first.application.look()
        assert first.kept() == []
        first.application.look()
        assert first.kept() == ["shuffle(key)"]
        assert vertex.tasks[index] == 7777


def _run_again(spark: SparkSession, number: int, index: int, task: int, as_task: int) -> None:
    """Let the tracker know a map output as that of another task, as after a rollback."""
    manager = of_environment(spark, "blockManager", "org.apache.spark.storage.BlockManager")
    dirs = LocalDirs(tuple(str(path) for path in manager.diskBlockManager().localDirsString()))
    old, new = MapOutput(number, task), MapOutput(number, as_task)
    for name in ("index", "data"):
        target = dirs.file(getattr(new, name))
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(dirs.file(getattr(old, name)).read_bytes())
    tracker = MapOutputTracker(spark)
    place, sizes = tracker.places()["driver"], [1, 1, 1, 1]
    tracker._tracker.unregisterMapOutput(number, index, place)
    tracker.register(number, index, as_task, place, sizes, 0)
