"""A success is taken notice of last, whoever does it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from airflow_provider.core.errors import StoreUnavailable
from airflow_provider.core.events import AttemptStarted, JobFinished
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.core.report import JobReport, build_report
from airflow_provider.storage.acknowledgement import take_notice
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from tests.storage.conftest import PREFIX
from tests.support.replaying import replay
from tests.support.stores import WatchedStore

LOG = logging.getLogger("tests")


@pytest.fixture
def report() -> JobReport:
    return build_report("job", replay([AttemptStarted(epoch=1), JobFinished(epoch=1)]))


def store_one(store: ObjectStore, folder: Path, epoch: int = 1) -> StoredPartition:
    path = folder / "partition"
    path.write_bytes(b"rows")
    partition = StoredPartition("v-f", "l", 0, 1, epoch, task=0, rows=1, checksum="00000000", millis=1)
    PartitionStore(store, PREFIX).put(partition, path)
    return partition


def test_partitions_go_before_the_success_is_noted(files: FileObjectStore, tmp_path: Path, report: JobReport) -> None:
    """At the moment of the acknowledgement nothing is stored any more, so a death before it leaves it unseen."""
    store_one(files, tmp_path)
    left: list[int] = []

    def look(operation: str, key: str) -> None:
        if "/acks/" in key:
            left.append(len(PartitionStore(files, PREFIX).survivors()))

    take_notice(WatchedStore(files, look), PREFIX, report, LOG)
    assert left == [0]
    assert Claims(files, PREFIX).acknowledged(1)


def test_kept_partitions_stay(files: FileObjectStore, tmp_path: Path, report: JobReport) -> None:
    """Whoever wants to look at them says so; the success is noted all the same."""
    store_one(files, tmp_path)
    take_notice(files, PREFIX, report, LOG, keep=True)
    assert list(PartitionStore(files, PREFIX).survivors()) == ["v-f"]
    assert Claims(files, PREFIX).acknowledged(1)


def test_a_store_that_cannot_delete_does_not_hide_the_success(
    files: FileObjectStore, tmp_path: Path, report: JobReport, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be released is a warning; what cannot be noted is another."""
    store_one(files, tmp_path)
    broken = {"delete"}

    def fail(operation: str, key: str) -> None:
        if operation in broken:
            raise StoreUnavailable(f"no {operation}")

    take_notice(WatchedStore(files, fail), PREFIX, report, LOG)
    assert Claims(files, PREFIX).acknowledged(1)
    assert "could not be released: no delete" in caplog.text
    broken.add("put_new")
    take_notice(WatchedStore(files, fail), PREFIX, report, LOG)
    assert "could not take note of that: no put_new" in caplog.text
