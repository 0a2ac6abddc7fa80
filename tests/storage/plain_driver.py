"""A driver without Spark, as a process: three vertices of four partitions, each the sum of the ones below.

It does what a driver does, with the driver's own modules, and notes each partition that it computes.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.recovery.causes import causes, one_line
from airflow_provider.recovery.errors import CorruptObject, RecoveryError
from airflow_provider.recovery.events import VertexInitialized
from airflow_provider.recovery.faults import AFTER_PARTITION_PUT, AFTER_SINK_COMMIT, FAULT, fault_point
from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.options import RecoveryOptions, StorageOptions
from airflow_provider.recovery.partitions import StoredPartition
from airflow_provider.recovery.run_request import RunRequest
from airflow_provider.spark.job_master import JobMaster
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore, file_checksum
from airflow_provider.storage.uris import open_store

VERTICES = {"a": (), "b": ("a",), "c": ("a", "b")}
PARTITIONS = 4
LAYOUT = "rows"
LARGE = 17 * 1024**2
"""Bytes of padding in one partition, so many that it is uploaded in parts."""
JOB = JobId(("plain",))


def rows(name: str, index: int, below: dict[str, dict[int, int]]) -> int:
    """What a partition holds: a number that tells whether everything below was right."""
    return 1 + index + 10 * sum(sum(numbers.values()) for numbers in (below[v] for v in VERTICES[name]))


def expected() -> dict[str, dict[int, int]]:
    """The rows of all vertices, as every run has to return them."""
    below: dict[str, dict[int, int]] = {}
    for name in VERTICES:
        below[name] = {index: rows(name, index, below) for index in range(PARTITIONS)}
    return below


def store_partition(
    partitions: PartitionStore, name: str, index: int, epoch: int, number: int, padding: int
) -> StoredPartition:
    body = bytes(padding) if (name, index) == ("b", 1) else b""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "partition.parquet"
        pq.write_table(pa.table({"number": [number], "padding": [body]}), path, compression="none")
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
    fault_point(AFTER_PARTITION_PUT)
    return partition


def read(partitions: PartitionStore, partition: StoredPartition) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "partition.parquet"
        partitions.fetch(partition, path)
        return int(pq.read_table(path, columns=["number"])["number"][0].as_py())


def run_vertex(
    master: JobMaster, partitions: PartitionStore, name: str, below: dict[str, dict[int, int]], log: Path, padding: int
) -> None:
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
    below[name] = {}
    for index in range(PARTITIONS):
        if index in kept:
            try:
                below[name][index] = read(partitions, kept[index])
            except CorruptObject:  # the vertex is restarted, as a failover does
                master.give_up(kept[index])
                return run_vertex(master, partitions, name, below, log, padding)
            master.partition_finished(kept[index])
            continue
        with log.open("a") as file:
            file.write(f"{master.epoch} {name} {index}\n")
        below[name][index] = rows(name, index, below)
        try:
            partition = store_partition(partitions, name, index, master.epoch, below[name][index], padding)
        except RecoveryError as error:  # the job goes on, this partition unrecorded
            logging.warning("%s %d is not stored: %s", name, index, error)
        else:
            master.partition_finished(partition)
    if not master.graph.vertices[name].missing:
        master.vertex_finished(name)
    return None


def run_job(store: ObjectStore, request: RunRequest, log: Path, padding: int = 0) -> dict[str, dict[int, int]]:
    """One attempt, from the claim to the end; return the rows of each vertex, nothing if the job had succeeded."""
    master = JobMaster(request, store, on_fenced=lambda _: None)
    if not master.start():
        master.acknowledge()
        return {}
    partitions = PartitionStore(store, master.prefix)
    below: dict[str, dict[int, int]] = {}
    try:
        if master.coordinator("step/threshold") is None:
            master.remember("step/threshold", {"result": 5})
        for name in VERTICES:
            run_vertex(master, partitions, name, below, log, padding)
            if name == "b" and not any(attempt.restarts for attempt in master.graph.attempts.values()):
                error = RuntimeError("by chance")
                master.failed_vertex(name, one_line(error), causes(error), (), ["a", "b"])
        fault_point(AFTER_SINK_COMMIT)  # an output stands outside of the store, and nobody has heard of it
        master.remember("sink/output", {"status": "WRITTEN", "attempt": master.epoch})
    except RecoveryError as error:
        master.failed(one_line(error))
        raise
    master.finished()
    return below


def request_for(event_store: str, options: Mapping[str, Any]) -> RunRequest:
    """A job whose driver flushes and takes snapshots as often as it can."""
    recovery = {
        "write_buffer_flush_interval": "5 ms",
        "snapshot_min_pause": 0,
        "previous_worker_recovery_timeout": "1 s",
    }
    return RunRequest(
        event_store=event_store,
        job=JOB,
        application="plain",
        options=RecoveryOptions.from_mapping(recovery),
        storage=StorageOptions.from_mapping(options),
        keep_partitions=True,
    )


def run_attempt(event_store: str, options: Mapping[str, Any], log: Path, printed: Path, fault: str) -> None:
    """One attempt in a process of its own, which may be killed at *fault*; writes its rows to *printed*, as JSON."""
    os.environ[FAULT] = fault
    with log.with_suffix(".log").open("a") as file:
        os.dup2(file.fileno(), 2)
    request = request_for(event_store, options)
    below = run_job(open_store(event_store, request.storage), request, log, LARGE)
    printed.write_text(json.dumps(below))
