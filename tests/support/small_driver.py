"""A small job without Spark, with the driver's own modules: three vertices of four partitions, one above the other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from airflow_provider.core.events import VertexInitialized
from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.job_master import JobMaster
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore, file_checksum

VERTICES: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ("a", "b")}
PARTITIONS = 4
LAYOUT = "rows"
REQUEST = RunRequest(
    event_store="file:///unused",
    job=JobId(("small",)),
    application="small",
    options=RecoveryOptions.from_mapping(
        {"write_buffer_flush_interval": "5 ms", "snapshot_min_pause": 0, "previous_worker_recovery_timeout": "1 s"}
    ),
    keep_partitions=True,
)


def run_vertices(master: JobMaster, store: ObjectStore, names: Iterable[str], log: Path) -> None:
    """Let an attempt come to the vertices; note in *log* each partition that it computes."""
    partitions = PartitionStore(store, master.prefix)
    for name in names:
        kept = master.survivors_of(name, LAYOUT, PARTITIONS, True)
        master.vertex_initialized(
            VertexInitialized(
                epoch=master.epoch,
                vertex=name,
                name=name,
                fingerprint=name,
                parallelism=PARTITIONS,
                layout=LAYOUT,
                deterministic=True,
                upstream=VERTICES[name],
            )
        )
        for index in range(PARTITIONS):
            if index not in kept:
                with log.open("a") as file:
                    file.write(f"{master.epoch} {name} {index}\n")
                kept[index] = _store(partitions, name, index, master.epoch)
            master.partition_finished(kept[index])
        master.vertex_finished(name)


def run_job(store: ObjectStore, request: RunRequest, log: Path) -> None:
    """Run one attempt to its success."""
    master = JobMaster(request, store, on_fenced=lambda _: None)
    assert master.start()
    run_vertices(master, store, VERTICES, log)
    master.finished()


def computed(log: Path, epoch: int) -> set[tuple[str, int]]:
    """Which partitions an attempt has computed."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return {(name, int(index)) for attempt, name, index in lines if int(attempt) == epoch}


def _store(partitions: PartitionStore, name: str, index: int, epoch: int) -> StoredPartition:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "partition"
        path.write_bytes(f"{name} {index}".encode())
        partition = StoredPartition(
            vertex=name,
            layout=LAYOUT,
            index=index,
            parallelism=PARTITIONS,
            epoch=epoch,
            task=index,
            rows=1,
            checksum=file_checksum(path),
            millis=1,
            bytes=path.stat().st_size,
        )
        partitions.put(partition, path)
    return partition
