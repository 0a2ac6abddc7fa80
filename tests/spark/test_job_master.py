"""The driver's hold on its job, without Spark: what it makes of a store that has lost something."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from airflow_provider.core.errors import AccessDenied, Fenced, StoreError, StoreUnavailable
from airflow_provider.core.events import JobStateChanged, PartitionsReset, VertexInitialized
from airflow_provider.core.executions import Executions, ExecutionState
from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.core.report import build_report
from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.job_master import JobMaster
from airflow_provider.spark.points.materialize import _Collector
from airflow_provider.storage.blocks import encode_block
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.snapshots import Snapshots
from tests.support.stores import WatchedStore

JOB = JobId(("dag", "run", "task", "-1"))


def no_answer(_: Heartbeat) -> int | None:
    raise StoreUnavailable("no answer")


class Driver:
    """Attempts at one job in one store, none of which has a living predecessor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FileObjectStore(folder / "store")
        self.options = RecoveryOptions(write_buffer_flush_interval=3600, snapshot_min_pause=3600)
        self.partitions = PartitionStore(self.store, JOB.prefix)

    @contextmanager
    def attempt(
        self, fresh: str = "", *, supervised: bool = True, automatic_retry: bool = False
    ) -> Iterator[JobMaster]:
        request = RunRequest(
            f"file://{self.folder}/store",
            JOB,
            "script.py",
            options=self.options,
            fresh=fresh,
            supervised=supervised,
            automatic_retry=automatic_retry,
            previous_lost=10**6,
        )
        master = JobMaster(request, self.store, on_fenced=lambda _: None)
        assert master.start()
        try:
            yield master
        finally:
            with suppress(Fenced):
                master.failed("the test ends the attempt here")

    def compute(
        self,
        master: JobMaster,
        vertex: str,
        *indexes: int,
        deterministic: bool = True,
        name: str = "",
        upstream: tuple[str, ...] = (),
    ) -> None:
        """Do what a checkpoint does: initialise, store and record the partitions, finish if that was all."""
        master.vertex_initialized(
            VertexInitialized(
                epoch=master.epoch,
                vertex=vertex,
                name=name or vertex,
                fingerprint="f",
                parallelism=2,
                layout="l",
                deterministic=deterministic,
                upstream=upstream,
            )
        )
        for index in indexes:
            master.partition_finished(self.put(vertex, index, master.epoch))
        if len(indexes) == 2:
            assert master.vertex_finished(vertex)

    def put(self, vertex: str, index: int, epoch: int, task: int = 0) -> StoredPartition:
        body = f"{vertex} {index} {epoch} {task}".encode()
        path = self.folder / "partition"
        path.write_bytes(body)
        partition = StoredPartition(
            vertex, "l", index, 2, epoch, task, rows=1, checksum=f"{zlib.crc32(body):08x}", millis=1, bytes=len(body)
        )
        self.partitions.put(partition, path)
        return partition

    def stored(self) -> dict[str, list[tuple[int, int]]]:
        """Vertex → (index, attempt) of what is stored."""
        return {v: sorted((p.index, p.epoch) for p in found) for v, found in self.partitions.survivors().items()}

    def refuse_events(self) -> list[str]:
        """Let the store take events for as long as the list that is returned is empty."""
        refused: list[str] = []

        def refuse(operation: str, key: str) -> None:
            if refused and operation == "put_new" and "/events/" in key:
                raise StoreError(refused[0])

        self.store = WatchedStore(self.store, refuse)  # type: ignore[assignment]
        return refused

    def damage(self, block: int) -> None:
        self.store.put(JobEventLog(self.store, JOB.prefix).key(block), b"rubbish")

    def from_a_newer_release(self, block: int) -> None:
        """Let a block hold an event that this release does not know."""
        log = JobEventLog(self.store, JOB.prefix)
        found = log.block(block)
        assert found is not None
        assert found.header is not None
        header = replace(found.header, records=1)
        self.store.put(log.key(block), encode_block(header, ['{"at":0.0,"epoch":1,"type":"Unheard","version":1}']))


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def test_an_attempt_reconciles_before_it_runs(driver: Driver) -> None:
    """Between the two states it finds out what survived: what was recorded and is not there any more counts as lost."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0, 1)
    driver.partitions.delete([p for p in driver.partitions.survivors()["v-f"] if p.index == 1])
    with driver.attempt() as master:
        assert set(master.survivors("v-f")) == {0}
    events = [event for event in JobEventLog(driver.store, JOB.prefix).read().events if event.epoch == 2]
    told = [event for event in events if isinstance(event, (JobStateChanged, PartitionsReset))]
    assert [event.state if isinstance(event, JobStateChanged) else event.indexes for event in told] == [
        "RECONCILING",
        (1,),
        "RUNNING",
    ]


def test_of_two_results_of_a_partition_the_recorded_one_is_reused(driver: Driver) -> None:
    """A listing finds both; of what is not deterministic only that is kept of which the events say that it was read."""
    with driver.attempt() as master:
        driver.compute(master, "drawn-f", 0, 1, deterministic=False)
        recorded = {partition.index: partition.key for partition in driver.partitions.survivors()["drawn-f"]}
        driver.put("drawn-f", 0, master.epoch, task=7)
    assert driver.stored()["drawn-f"] == [(0, 1), (0, 1), (1, 1)]
    with driver.attempt() as master:
        assert {index: partition.key for index, partition in master.survivors("drawn-f").items()} == recorded


def test_a_vertex_is_finished_only_when_the_store_has_its_events(driver: Driver) -> None:
    """Whoever reads the store then finds it finished; where the store takes no events it is not."""
    refused = driver.refuse_events()
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0, 1)
        assert JobEventLog(driver.store, JOB.prefix).replay().graph.vertices["v-f"].finished
        driver.compute(master, "w-f", 0)
        master.partition_finished(driver.put("w-f", 1, master.epoch))
        refused.append("the bucket is gone")
        assert not master.vertex_finished("w-f")


def test_a_success_that_is_not_in_the_store_is_no_success_of_the_job(driver: Driver) -> None:
    """Nobody takes notice of it, so its partitions stay, and the next attempt goes on from them."""
    refused = driver.refuse_events()
    with driver.attempt(supervised=False) as master:
        driver.compute(master, "v-f", 0, 1)
        refused.append("the bucket is gone")
        master.finished()
    assert Claims(driver.store, JOB.prefix).acknowledged(1) is None
    assert driver.stored() == {"v-f": [(0, 1), (1, 1)]}
    refused.clear()
    with driver.attempt(supervised=False) as master:
        assert set(master.survivors("v-f")) == {0, 1}


def test_a_late_report_of_an_overtaken_execution_is_ignored(driver: Driver) -> None:
    """A task of a cancelled Spark job may still end: its partition is not recorded, the restart's own is."""
    executions = Executions()
    with driver.attempt() as master:
        driver.compute(master, "v-f")
        old = executions.begin("v-f")
        late = _Collector(master, "v", lambda: executions.reporting(old))
        executions.fail(old)
        new = executions.begin("v-f")
        restarted = _Collector(master, "v", lambda: executions.reporting(new))
        late.take(driver.put("v-f", 0, master.epoch, task=1).key, 1, "")
        assert (late.stored, master.graph.vertices["v-f"].partitions) == ({}, {})
        again = driver.put("v-f", 0, master.epoch, task=2)
        restarted.take(again.key, 1, "")
        assert master.graph.vertices["v-f"].partitions[0].key == again.key


@pytest.mark.parametrize(("stored", "extent"), [((0, 1), ""), ((1,), " in part")], ids=["full", "part"])
def test_a_history_that_cannot_be_true_abandons_recovery(
    driver: Driver, caplog: pytest.LogCaptureFixture, stored: tuple[int, ...], extent: str
) -> None:
    """A vertex has finished, in full or in part, and one that it reads never had: nothing is reused, and the log says
    which two.
    """
    with driver.attempt() as master:
        driver.compute(master, "a-f", 0)
        driver.compute(master, "b-f", *stored, upstream=("a-f",))
    with caplog.at_level("ERROR", "airflow_provider"), driver.attempt() as master:
        assert (master.survivors("a-f"), master.survivors("b-f")) == ({}, {})
    assert f"RECOVERY ABANDONED: b-f has finished{extent}, but a-f, which it reads, never has." in caplog.text
    assert driver.stored() == {}
    assert build_report("job", inspect_job(driver.store, JOB)).restarts == 1


def test_a_producer_that_was_reset_since_is_no_reason_to_give_up(driver: Driver) -> None:
    """It had finished when its reader began; since then a restart has reset it, or a partition of it is lost."""
    with driver.attempt() as master:
        driver.compute(master, "a-f", 0, 1)
        driver.compute(master, "b-f", 0, upstream=("a-f",))
        master.start_over("a-f", "restarted after a failure")
        driver.compute(master, "a-f", 0)
    driver.partitions.delete([p for p in driver.partitions.survivors()["a-f"] if p.index == 0])
    with driver.attempt() as master:
        assert set(master.survivors("b-f")) == {0}
        assert not build_report("job", master.graph).restarts


def test_a_run_by_hand_is_an_automatic_retry_only_if_it_says_so(driver: Driver) -> None:
    """Else somebody wants new data; an operator says it itself, or nothing."""
    for retry in (True, False, True, True):
        with driver.attempt(supervised=False, automatic_retry=retry) as master:
            assert master.series
    assert [master.only_retried_since(epoch) for epoch in (1, 2, 3, 4)] == [False, True, True, True]
    with driver.attempt(automatic_retry=True) as master:
        assert not master.series
        assert not master.only_retried_since(4)


def test_runs_by_hand_are_one_moment(driver: Driver) -> None:
    """Who runs a job again goes on with it; for an operator a word tells its retries, and without one each differs."""
    found = []
    for retry in (False, True, False):
        with driver.attempt(supervised=False, automatic_retry=retry) as master:
            found.append(master.moment)
    for _ in range(2):
        with driver.attempt() as master:
            found.append(master.moment)
    assert found == ["by hand", "by hand", "by hand", "attempt 4", "attempt 5"]


def test_a_lost_block_of_the_last_attempt_costs_nothing_that_is_deterministic(driver: Driver) -> None:
    """Its partitions are found by listing; a vertex that is not deterministic is computed again."""
    with driver.attempt() as master:
        driver.compute(master, "drawn-f", 0, 1, deterministic=False)
        driver.compute(master, "plain-f", 0)
    blocks = JobEventLog(driver.store, JOB.prefix).numbers()
    driver.damage(blocks[-1])
    with driver.attempt() as master:
        assert not build_report("job", master.graph).restarts
        assert set(master.survivors("plain-f")) == {0}
        assert master.survivors("drawn-f") == {}
        assert "block" in master.graph.problems[0]


def test_a_lost_start_abandons_recovery_loudly(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """The second attempt began afresh; with its first block lost, the third must not take up the first one's work."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0, 1)
    first_of_second = JobEventLog(driver.store, JOB.prefix).load().next_block
    with driver.attempt(fresh="cleared") as master:
        driver.compute(master, "v-f", 0)
    driver.damage(first_of_second)
    with caplog.at_level("ERROR", "airflow_provider"), driver.attempt() as master:
        assert master.survivors("v-f") == {}
        assert "RECOVERY ABANDONED" in caplog.text
        driver.compute(master, "v-f", 0, 1)
    report = build_report("job", inspect_job(driver.store, JOB))
    assert (report.restarts, report.attempts[-1].fresh) == (1, True)
    with driver.attempt() as master:
        assert set(master.survivors("v-f")) == {0, 1}, "what is recorded after the loss is believed"
        assert master.vertex("v-f") is not None
    assert build_report("job", inspect_job(driver.store, JOB)).restarts == 1


def test_what_a_fresh_start_gave_up_is_deleted(driver: Driver) -> None:
    """It is never reused, so it need not take room until the job ends."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0, 1)
    with driver.attempt(fresh="cleared") as master:
        assert driver.stored() == {}
        driver.compute(master, "v-f", 0)
    assert driver.stored() == {"v-f": [(0, 2)]}


def test_unfinished_uploads_of_dead_attempts_are_aborted(driver: Driver) -> None:
    """Nobody will finish them; what this attempt itself is writing is left alone."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0)
    folder = driver.folder / "store" / ".tmp" / JOB.prefix / "partitions" / "v-f" / "l"
    folder.mkdir(parents=True)
    for epoch in (1, 2):
        (folder / f"000001-of-000002.e{epoch}.t0.r1.c00000000.ms1.parquet.half").write_bytes(b"half")
    with driver.attempt() as master:
        assert [path.name.split(".")[1] for path in folder.iterdir()] == ["e2"]
        assert set(master.survivors("v-f")) == {0}


def test_a_vertex_whose_place_another_has_taken_is_released(driver: Driver) -> None:
    """Changed code makes a new vertex of the same name; the next attempt deletes the old one and says so."""
    with driver.attempt() as master:
        driver.compute(master, "v-old", 0, 1, name="v")
        driver.compute(master, "w-f", 0, 1)
    with driver.attempt() as master:
        driver.compute(master, "v-new", 0, name="v")
    assert sorted(driver.stored()) == ["v-new", "v-old", "w-f"]
    with driver.attempt() as master:
        assert sorted(driver.stored()) == ["v-new", "w-f"]
        assert master.survivors("v-old") == {}
        assert set(master.survivors("w-f")) == {0, 1}
        driver.compute(master, "v-old", 0, 1, name="v")  # the code is changed back
    assert driver.stored()["v-old"] == [(0, 3), (1, 3)]


def test_a_partition_that_comes_after_success_is_released(driver: Driver) -> None:
    """A task that was not cancelled in time leaves nothing behind."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0)
        master.finished()
        master.partition_finished(driver.put("v-f", 1, 1))
    assert driver.stored() == {"v-f": [(0, 1)]}, "the operator releases the rest"


def test_a_partition_that_comes_after_failure_is_kept(driver: Driver) -> None:
    """The next attempt finds it by listing."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0)
    master.partition_finished(driver.put("v-f", 1, 1))
    with driver.attempt() as master:
        assert set(master.survivors("v-f")) == {0, 1}


def chain(driver: Driver, master: JobMaster) -> None:
    """``a`` ← ``b``, both finished."""
    driver.compute(master, "a-f", 0, 1)
    driver.compute(master, "b-f", 0, 1, upstream=("a-f",))


def deleted(master: JobMaster) -> None:
    """Let what may go be deleted, by an attempt that knows that it owns the job."""
    master.check_now()
    master.delete_unneeded()


def test_a_vertex_is_released_in_the_store_before_its_objects_go(driver: Driver) -> None:
    """As long as the store does not record, nothing is deleted; a retry calls nothing lost, and needs nothing of it."""
    refused = driver.refuse_events()
    with driver.attempt() as master:
        chain(driver, master)
        assert master.needed_no_more() == ["a-f"]
        assert not master.release("b-f")
        refused.append("the bucket is gone")
        assert master.release("a-f")
        deleted(master)
        assert sorted(driver.stored()) == ["a-f", "b-f"]
    refused.clear()
    with driver.attempt() as master:
        assert master.release("a-f")
        deleted(master)
        assert sorted(driver.stored()) == ["b-f"]
        assert inspect_job(driver.store, JOB).vertices["a-f"].released
    with driver.attempt() as master:
        assert (master.survivors("a-f"), master.optional("a-f")) == ({}, True)
        told = [event for event in JobEventLog(driver.store, JOB.prefix).read().events if event.epoch == master.epoch]
        assert not [event for event in told if isinstance(event, PartitionsReset)]
        driver.compute(master, "a-f", 0, 1)  # something needs it all the same
        deleted(master)
        assert set(master.survivors("a-f")) == {0, 1}
    assert driver.stored()["a-f"] == [(0, 3), (1, 3)]


def test_what_a_killed_driver_has_released_and_not_deleted_is_swept(driver: Driver) -> None:
    """Nothing relies on it: the driver may have been about to delete it."""
    with driver.attempt() as master:
        chain(driver, master)
        assert master.release("a-f")
    assert sorted(driver.stored()) == ["a-f", "b-f"]
    with driver.attempt() as master:
        assert sorted(driver.stored()) == ["b-f"]
        assert master.survivors("a-f") == {}


def test_a_fenced_attempt_deletes_nothing(driver: Driver) -> None:
    """Its owner may rely on what the fenced one has released and the store has not recorded."""
    with driver.attempt() as zombie:
        chain(driver, zombie)
        assert zombie.release("a-f")
        with driver.attempt() as owner:
            assert set(owner.survivors("a-f")) == {0, 1}
            with pytest.raises(Fenced):
                zombie.delete_unneeded()
            assert driver.stored()["a-f"] == [(0, 1), (1, 1)]


def test_an_attempt_that_cannot_confirm_that_it_owns_the_job_deletes_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a successor; it deletes when it knows that it has none."""
    with driver.attempt() as master:
        chain(driver, master)
        assert master.release("a-f")
        with monkeypatch.context() as away:
            away.setattr(Heartbeat, "left", property(lambda _: 0.0))
            master.delete_unneeded()
            assert sorted(driver.stored()) == ["a-f", "b-f"]
        deleted(master)
        assert sorted(driver.stored()) == ["b-f"]


def test_what_a_failed_task_has_stored_goes_when_its_successor_is_stored(driver: Driver) -> None:
    """Objects and uploads of tasks that failed, or were overtaken; what a later task is storing is left alone."""
    with driver.attempt() as master:
        driver.compute(master, "v-f")
        for task in (1, 9):
            driver.put("v-f", 0, master.epoch, task)
        folder = driver.folder / "store" / ".tmp" / JOB.prefix / "partitions" / "v-f" / "l"
        folder.mkdir(parents=True, exist_ok=True)
        for task in (2, 9):
            (folder / f"000001-of-000002.e1.t{task}.r1.c00000000.ms1.parquet.half").write_bytes(b"half")
        master.partition_finished(driver.put("v-f", 0, master.epoch, 3), again=True)
        deleted(master)
        assert len(driver.stored()["v-f"]) == 3
        master.partition_finished(driver.put("v-f", 1, master.epoch, 4))
        master.vertex_finished("v-f")
        deleted(master)
        assert sorted((p.index, p.task) for p in driver.partitions.survivors()["v-f"]) == [(0, 3), (0, 9), (1, 4)]
        assert [path.name.split(".")[2] for path in folder.iterdir()] == ["t9"]


def test_the_result_of_a_cancelled_execution_goes_when_its_successor_is_stored(driver: Driver) -> None:
    """It comes late, from a task that nobody waits for; until then it stays, as there is nothing else."""
    executions = Executions()
    with driver.attempt() as master:
        driver.compute(master, "v-f")
        cancelled = executions.begin("v-f")
        executions.move(cancelled, ExecutionState.SCHEDULED)
        executions.cancel(["v-f"])
        late = _Collector(master, "v", partial(executions.reporting, cancelled))
        late.take(driver.put("v-f", 0, master.epoch, task=1).key, 1, "")
        deleted(master)
        assert len(driver.stored()["v-f"]) == 1
        for index in (0, 1):
            master.partition_finished(driver.put("v-f", index, master.epoch, task=2))
        master.vertex_finished("v-f")
        deleted(master)
        assert {p.task for p in driver.partitions.survivors()["v-f"]} == {2}


def test_map_outputs_that_spark_has_made_anew_replace_those_that_are_stored(driver: Driver) -> None:
    """Once the vertex is stored again, the old ones are read by nobody."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0, 1)
        master.partitions_recomputed("v-f", (0,), "Spark has run these map tasks again")
        master.partition_finished(driver.put("v-f", 0, master.epoch, task=5))
        deleted(master)
        assert len(driver.stored()["v-f"]) == 3
        master.vertex_finished("v-f")
        deleted(master)
        assert sorted((p.index, p.task) for p in driver.partitions.survivors()["v-f"]) == [(0, 5), (1, 0)]


def test_a_fenced_attempt_leaves_what_arrives_to_the_owner(driver: Driver) -> None:
    """The owner may have found and used it already; the fenced one records nothing and deletes nothing."""
    with driver.attempt() as zombie:
        driver.compute(zombie, "v-f", 0)
        with driver.attempt() as owner:
            late = driver.put("v-f", 1, 1)
            assert zombie._heartbeat is not None
            zombie._heartbeat._look_and_beat()
            with pytest.raises(Fenced):
                zombie.check_now()
            with pytest.raises(Fenced):
                zombie.partition_finished(late)
            assert driver.stored() == {"v-f": [(0, 1), (1, 1)]}
            assert set(owner.survivors("v-f")) == {0}
            driver.compute(owner, "v-f", 0, 1)


def test_a_driver_that_was_replaced_in_a_write_finds_out_behind_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its lease has run out meanwhile it asks once; if the store does not answer it goes on, to its next write."""
    with driver.attempt() as old:
        old.check_now()
        with driver.attempt():
            old.check_after()  # within its lease it asks nobody
            monkeypatch.setattr(Heartbeat, "lapsed", property(lambda _: True))
            with monkeypatch.context() as away:
                away.setattr(Heartbeat, "_look", no_answer)
                old.check_after()
            with pytest.raises(Fenced):
                old.check_after()


def test_a_write_does_not_begin_when_the_store_has_refused_its_record(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the thread that stores events has not come to say yet that a newer attempt owns the job."""
    monkeypatch.setattr(JobEventWriter, "_tell", lambda *_: None)
    with driver.attempt() as old, driver.attempt(), pytest.raises(Fenced):
        old.remember_first("sink/x", {"status": "BEGUN"})


def test_a_store_that_refuses_to_sweep_stops_nothing(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """Many roles may not list uploads or delete; that costs room only."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0)

    def refuse(operation: str, key: str) -> None:
        if operation in ("delete", "abort_uploads"):
            raise AccessDenied("not allowed")

    driver.store = WatchedStore(driver.store, refuse)  # type: ignore[assignment]
    with driver.attempt(fresh="cleared") as master:
        assert master.survivors("v-f") == {}
        driver.compute(master, "v-f", 0, 1)
    assert "could not be swept: not allowed" in caplog.text


def test_a_loss_is_dealt_with_once(driver: Driver) -> None:
    """The attempt that met it takes a snapshot, so the next one does not read the damaged block again."""
    with driver.attempt() as master:
        driver.compute(master, "v-f", 0)
    driver.damage(JobEventLog(driver.store, JOB.prefix).numbers()[-1])
    with driver.attempt():
        pass
    assert JobEventLog(driver.store, JOB.prefix).load().lost_blocks == []


@pytest.mark.parametrize("harm", ["damaged", "newer"])
def test_a_lost_block_costs_what_it_held(driver: Driver, harm: str) -> None:
    """What a snapshot or an intact block knows of steps, sources and sinks is still known, and what a later snapshot
    knows of what was lost.
    """
    with driver.attempt() as master:
        master.remember("step/kept", {"attempt": 1, "result": 1})
        driver.compute(master, "v-f", 0, 1)  # its end takes a snapshot
        master.remember("sink/kept", {"attempt": 1, "status": "WRITTEN"})
        master.remember("step/lost", {"attempt": 1, "result": 2})
        last = JobEventLog(driver.store, JOB.prefix).numbers()[-1]
        master.remember("source/kept", {"attempt": 1})
    assert Snapshots(driver.store, JOB.prefix).numbers()
    if harm == "damaged":
        driver.damage(last)
    else:
        driver.from_a_newer_release(last)
    with driver.attempt() as master:
        known = {name: master.coordinator(name) is not None for name in ("step/kept", "sink/kept", "source/kept")}
        assert known == dict.fromkeys(known, True)
        assert master.coordinator("step/lost") is None
        master.remember("step/lost", {"attempt": 2, "result": 3})
    with driver.attempt() as master:
        assert master.coordinator("step/lost") == {"attempt": 2, "result": 3}


def test_no_secret_of_sparks_configuration_is_recorded(tmp_path: Path) -> None:
    """What Spark's properties keep secret is nowhere in the store, though errors and sinks quote it."""
    store = FileObjectStore(tmp_path / "store")
    master = JobMaster(RunRequest(store.uri, JOB, "script.py"), store, on_fenced=lambda _: None)
    master.keep_secret({"spark.hadoop.fs.s3a.secret.key": "wJalrXUtnFEMI/K7"})
    assert master.start()
    master.remember("sink/1", {"status": "WRITTEN", "attempt": 1, "title": "wJalrXUtnFEMI/K7"})
    master.failed("denied for wJalrXUtnFEMI/K7")
    stored = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert b"denied for ***" in stored
    assert b"wJalrXUtnFEMI/K7" not in stored


def test_no_secret_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What environment and arguments of the script keep secret is nowhere in the store, though an error quotes it."""
    monkeypatch.setenv("DB_PASSWORD", "hunter22")
    store = FileObjectStore(tmp_path / "store")
    request = RunRequest(f"file://{tmp_path}/store", JOB, "script.py", arguments=("--token", "t0psecret"))
    master = JobMaster(request, store, on_fenced=lambda _: None)
    assert master.start()
    master.vertex_skipped("a", "hunter22 is no table")
    master.failed("cannot log in with hunter22 and t0psecret at https://bob:built@db/x")
    (report,) = build_report(str(JOB), inspect_job(store, JOB)).attempts
    assert report.error == "cannot log in with *** and *** at https://***@db/x"
    second = JobMaster(replace(request, fresh="hunter22 was wrong"), store, on_fenced=lambda _: None)
    assert second.start()
    second.failed("ended by the test")
    assert inspect_job(store, JOB).attempts[2].reason == "*** was wrong"
    stored = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert b"***" in stored
    for secret in (b"hunter22", b"t0psecret", b"built"):
        assert secret not in stored
