"""A driver is killed at every named fault point, on files and on S3, and its successor ends with the right result.

The driver is a real process that does all that a driver does but Spark's part (``plain_driver``), so that the whole
walk takes a minute; ``tests/spark/test_crashes.py`` walks the boundaries with Spark.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_provider.core import faults
from airflow_provider.core.graph import ExecutionGraph, JobState
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.uris import open_store
from tests.storage.conftest import BUCKET
from tests.storage.plain_driver import DRAWN, JOB, LARGE, PARTITIONS, VERTICES, Rows, is_right, run_attempt
from tests.support.s3_gateway import S3Server

pytestmark = pytest.mark.process

KILLED = -9
PROCESSES = multiprocessing.get_context("forkserver")
# A new process in milliseconds, not in seconds, with all that its driver imports.
PROCESSES.set_forkserver_preload(["tests.storage.preloaded"])
LATER = {
    faults.AFTER_PARTITION_EVENT: (6, 10),
    faults.AFTER_PARTITION_PUT: (7, 10),
    faults.BEFORE_VERTEX_FINISHED: (3,),
    faults.AFTER_VERTEX_FINISHED: (3,),
    faults.BEFORE_FLUSH: (5,),
    faults.AFTER_FLUSH: (5,),
}
"""Points that are passed often: killed at these passages, too; the third vertex is not deterministic."""


@dataclass
class PlainDriver:
    """Attempts at one job, each a process."""

    folder: Path
    event_store: str
    options: dict[str, str] = field(default_factory=dict)
    padding: int = 0

    def run(self, fault: str = "") -> tuple[int, Rows, str]:
        """Run an attempt; return its exit code, the rows of all vertices, and what it has logged."""
        printed, log = self.folder / "printed", self.computed.with_suffix(".log")
        printed.unlink(missing_ok=True)
        before = len(log.read_text()) if log.exists() else 0
        arguments = (self.event_store, self.options, self.computed, printed, fault, self.padding)
        process = PROCESSES.Process(target=run_attempt, args=arguments)
        process.start()
        process.join(60)
        assert process.exitcode is not None
        rows = json.loads(printed.read_text()) if printed.exists() else {}
        numbers = {name: {int(index): number for index, number in found.items()} for name, found in rows.items()}
        return process.exitcode, numbers, log.read_text()[before:]

    @property
    def computed(self) -> Path:
        return self.folder / "computed"

    def computed_by(self, epoch: int) -> set[tuple[str, int]]:
        """Which partitions an attempt has computed."""
        lines = [line.split() for line in self.computed.read_text().splitlines()] if self.computed.exists() else []
        return {(name, int(index)) for attempt, name, index in lines if int(attempt) == epoch}

    def stored(self) -> set[tuple[str, int]]:
        """Which partitions are in the store."""
        survivors = PartitionStore(self.store, JOB.prefix).survivors()
        return {
            (vertex.partition("-")[0], partition.index) for vertex, found in survivors.items() for partition in found
        }

    def graph(self) -> ExecutionGraph:
        return JobEventLog(self.store, JOB.prefix).replay().graph

    @property
    def store(self) -> ObjectStore:
        return open_store(self.event_store, StorageOptions.from_mapping(self.options))


@pytest.fixture(params=["file", "moto"])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> PlainDriver:
    if request.param == "file":
        return PlainDriver(tmp_path, f"file://{tmp_path}/store")
    return on_s3(request.getfixturevalue("moto"), tmp_path)


def on_s3(server: S3Server, folder: Path) -> PlainDriver:
    bucket = server.create_bucket(BUCKET)
    return PlainDriver(
        folder, f"s3://{bucket}/crashes/{uuid.uuid4().hex}", {"endpoint_url": server.endpoint, "region": "us-east-1"}
    )


EVERYTHING = {(name, index) for name in VERTICES for index in range(PARTITIONS)}


def check_end(plain: PlainDriver, attempts: int) -> None:
    """The last attempt succeeds with the right rows, computes nothing that was stored, and leaves a sound history."""
    stored, known = plain.stored(), plain.graph().vertices.get(DRAWN)
    drawn = {(DRAWN, index) for index in range(PARTITIONS)}
    whole = known is not None and known.finished
    code, found, log = plain.run()
    assert code == 0, log
    graph = plain.graph()
    assert graph.problems == []
    assert graph.newest is not None
    assert graph.newest.state is JobState.FINISHED
    if found:  # else the job had succeeded, unseen
        assert is_right(found)
        assert graph.newest.epoch == attempts
        # What is not deterministic is reused whole or not at all.
        assert plain.computed_by(attempts) == EVERYTHING - (stored if whole else stored - drawn)
    assert graph.coordinators["step/threshold"] == {"result": 5}
    assert sum(attempt.restarts for attempt in graph.attempts.values()) >= 1
    assert plain.stored() == EVERYTHING
    for name, vertex in graph.vertices.items():
        assert vertex.finished, name


def crash(plain: PlainDriver, fault: str) -> None:
    """Run an attempt that is killed at a fault point, and there only."""
    code, _, log = plain.run(fault)
    assert code == KILLED, f"{fault} was not passed: {log}"
    (marker,) = [line for line in log.splitlines() if line.startswith("spark-recovery: fault point")]
    assert re.fullmatch(re.escape(faults.killed_at(fault)) + r"\d+", marker)


LATER_PASSAGES = [f"{point}@{passage}" for point, passages in LATER.items() for passage in passages]


@pytest.mark.parametrize(
    ("plain", "fault"),
    [
        *(("file", fault) for fault in (*faults.OF_EVERY_DRIVER, *LATER_PASSAGES)),
        *(pytest.param("moto", fault, marks=pytest.mark.integration) for fault in faults.OF_EVERY_DRIVER),
        *(pytest.param("moto", fault, marks=pytest.mark.walk) for fault in LATER_PASSAGES),
    ],
    indirect=["plain"],
)
def test_killed_there_and_run_again(plain: PlainDriver, fault: str) -> None:
    """Whatever was under way, the successor knows all that was confirmed and finds all that was stored."""
    if fault == faults.WITHIN_MULTIPART_UPLOAD:
        plain.padding = LARGE
    if fault == faults.DURING_RECONCILIATION:  # only a successor passes it
        crash(plain, f"{faults.AFTER_PARTITION_EVENT}@6")
        crash(plain, fault)
        check_end(plain, attempts=3)
    else:
        crash(plain, fault)
        check_end(plain, attempts=2)


@pytest.mark.few(2)
@pytest.mark.parametrize("fault", [faults.BEFORE_FIRST_EVENT, faults.AFTER_FLUSH, faults.AFTER_SNAPSHOT])
def test_killed_there_three_times_in_a_row(plain: PlainDriver, fault: str) -> None:
    """A successor may die as its predecessor did."""
    for _ in range(3):
        crash(plain, fault)
    check_end(plain, attempts=4)


@pytest.mark.parametrize("fault", [faults.WITHIN_MULTIPART_UPLOAD, faults.AFTER_PARTITION_PUT, faults.AFTER_FLUSH])
def test_killed_there_on_another_s3_server(s3_gateway: S3Server, tmp_path: Path, fault: str) -> None:
    """Ceph's gateway, whose conditions and uploads are its own."""
    plain = on_s3(s3_gateway, tmp_path)
    plain.padding = LARGE
    crash(plain, fault)
    check_end(plain, attempts=2)


@pytest.mark.few(1)
def test_what_was_derived_from_a_lost_incarnation_is_discarded(plain: PlainDriver) -> None:
    """A partition of what is not deterministic is gone: all of it is drawn anew, and what read it is computed again."""
    crash(plain, f"{faults.AFTER_PARTITION_EVENT}@14")
    partitions = PartitionStore(plain.store, JOB.prefix)
    partitions.delete(partitions.survivors()[DRAWN][:1])
    code, found, log = plain.run()
    assert code == 0, log
    assert is_right(found)
    assert plain.computed_by(2) == {(name, index) for name, index in EVERYTHING if name in (DRAWN, "c")}
