"""A driver is killed at every named fault point, on files and on S3, and its successor ends with the right result.

The driver is a real process that does all that a driver does but Spark's part (``plain_driver``), so that the whole
walk takes a minute; ``tests/spark/test_crashes.py`` walks the boundaries with Spark.
"""

from __future__ import annotations

import json
import multiprocessing
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_provider.recovery import faults
from airflow_provider.recovery.graph import JobState
from airflow_provider.recovery.options import StorageOptions
from airflow_provider.storage.event_store import JobEventLog
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.uris import open_store
from tests.storage.conftest import BUCKET
from tests.storage.plain_driver import JOB, PARTITIONS, VERTICES, expected, run_attempt
from tests.support.s3_gateway import S3Server

pytestmark = pytest.mark.process

KILLED = -9
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.storage.plain_driver"])  # a new process in milliseconds, not in seconds
LATER = {faults.AFTER_PARTITION_EVENT: 6, faults.AFTER_PARTITION_PUT: 7, faults.BEFORE_FLUSH: 5, faults.AFTER_FLUSH: 5}
"""Points that are passed often: killed at this passage, too."""


@dataclass
class PlainDriver:
    """Attempts at one job, each a process."""

    folder: Path
    event_store: str
    options: dict[str, str] = field(default_factory=dict)

    def run(self, fault: str = "") -> tuple[int, str, str]:
        """Run an attempt; return its exit code, the rows of all vertices as JSON, and its log."""
        printed = self.folder / "printed"
        process = PROCESSES.Process(
            target=run_attempt, args=(self.event_store, self.options, self.computed, printed, fault)
        )
        process.start()
        process.join(60)
        assert process.exitcode is not None
        log = self.computed.with_suffix(".log")
        return process.exitcode, printed.read_text() if printed.exists() else "", log.read_text()

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
        return {(vertex, partition.index) for vertex, found in survivors.items() for partition in found}

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


def check_end(plain: PlainDriver, attempts: int) -> None:
    """The last attempt succeeds with the right rows, computes nothing that was stored, and leaves a sound history."""
    before = plain.stored()
    code, printed, log = plain.run()
    assert code == 0, log
    graph = JobEventLog(plain.store, JOB.prefix).load().replay()
    assert graph.problems == []
    assert graph.newest is not None
    assert graph.newest.state is JobState.FINISHED
    if json.loads(printed):  # else the job had succeeded, unseen
        assert json.loads(printed) == json.loads(json.dumps(expected()))
        assert plain.computed_by(graph.newest.epoch).isdisjoint(before)
        assert graph.newest.epoch == attempts
    assert graph.coordinators["step/threshold"] == {"result": 5}
    assert sum(attempt.restarts for attempt in graph.attempts.values()) >= 1
    everything = {(name, index) for name in VERTICES for index in range(PARTITIONS)}
    assert plain.stored() == everything
    for name, vertex in graph.vertices.items():
        assert vertex.finished, name


def crash(plain: PlainDriver, fault: str) -> None:
    code, _, log = plain.run(fault)
    assert code == KILLED, f"{fault} was not passed: {log}"


@pytest.mark.parametrize("fault", [*faults.POINTS, *(f"{point}@{passage}" for point, passage in LATER.items())])
def test_killed_there_and_run_again(plain: PlainDriver, fault: str) -> None:
    """Whatever was under way, the successor knows all that was confirmed and finds all that was stored."""
    if fault == faults.DURING_RECONCILIATION:  # only a successor passes it
        crash(plain, f"{faults.AFTER_PARTITION_EVENT}@6")
        crash(plain, fault)
        check_end(plain, attempts=3)
    else:
        crash(plain, fault)
        check_end(plain, attempts=2)


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
    crash(plain, fault)
    check_end(plain, attempts=2)
