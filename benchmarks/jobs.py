"""Jobs for the benchmarks of the job event store: what a driver tells of vertices and partitions, without Spark."""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow_provider.core.digest import digest
from airflow_provider.core.events import PartitionFinished, VertexFinished, VertexInitialized
from airflow_provider.core.job import JobId
from airflow_provider.core.partitions import StoredPartition, finished_event
from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.recording import JobRecord
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.object_store import ObjectStore

JOB = JobId.of_task_instance("benchmark", "manual__2026-01-01T00:00:00+00:00", "job")


def request(uri: str) -> RunRequest:
    """Return what an operator asks a driver to run once it has seen that the last driver is gone."""
    return RunRequest(uri, JOB, "job.py", supervised=True, previous_lost=1_000_000)


def initialized(number: int, parallelism: int, epoch: int = 1) -> VertexInitialized:
    """Return the event that begins vertex *number*; everything in it has the length that it has in real jobs."""
    fingerprint = digest("fingerprint", str(number))
    name = f"vertex_{number}"
    return VertexInitialized(
        epoch=epoch,
        at=_at(number, 0),
        vertex=f"{name}-{fingerprint[:32]}",
        name=name,
        fingerprint=fingerprint,
        parallelism=parallelism,
        layout=digest("layout", str(number))[:16],
        deterministic=True,
        schema='{"fields":[{"metadata":{},"name":"id","nullable":true,"type":"long"}],"type":"struct"}',
        parts={part: digest(part, str(number))[:16] for part in ("plan", "schema", "settings", "versions")},
        layout_spec={"reads": []},
    )


def stored(vertex: VertexInitialized, index: int, size: int = 0) -> StoredPartition:
    """Return a partition as an executor would have stored it; its figures differ from those of its neighbours.

    :param size: bytes of its object; by default any number
    """
    noise = zlib.crc32(f"{vertex.vertex} {index}".encode())
    return StoredPartition(
        vertex.vertex,
        vertex.layout,
        index,
        vertex.parallelism,
        vertex.epoch,
        task=noise % 1_000_000,
        rows=noise % 300_000,
        checksum=f"{noise:08x}",
        millis=noise % 100_000,
        bytes=size or noise % 10_000_000,
    )


def finished(vertex: VertexInitialized, partition: StoredPartition) -> PartitionFinished:
    """Return the event that tells of a stored partition, as ``JobMaster`` writes it."""
    at = _at(int(vertex.name.rpartition("_")[2]), partition.index + 1)
    return finished_event(partition, vertex.epoch, at)


def partitions_of(vertex: VertexInitialized, size: int = 0) -> Iterator[PartitionFinished]:
    """Return the events of all partitions of a vertex; see :func:`stored` for *size*."""
    return (finished(vertex, stored(vertex, index, size)) for index in range(vertex.parallelism))


def tell(record: JobRecord, vertices: int, parallelism: int, size: int = 0) -> None:
    """Record all of a job, as its driver would; see :func:`stored` for *size*."""
    for number in range(vertices):
        vertex = initialized(number, parallelism)
        record.add(vertex)
        for event in partitions_of(vertex, size):
            record.add(event)
        record.add(VertexFinished(epoch=vertex.epoch, at=event.at, vertex=vertex.vertex, layout=vertex.layout))


@contextmanager
def recording(store: ObjectStore) -> Iterator[JobRecord]:
    """Begin the first attempt at the job; at the end everything is stored."""
    record = JobRecord(request(store.uri), store, on_fenced=never)
    record.begin(Claims(store, JOB.prefix).claim(), "")
    yield record
    assert record.flush(), "the events could not be stored"
    record.close()


def never(newer: object) -> None:
    """What a fence or an error of the store comes to in a benchmark."""
    raise AssertionError(f"the job was taken, or its store failed: {newer}")


def summary(rounds: Sequence[Mapping[str, float]], goals: Mapping[str, float]) -> dict[str, dict[str, float | None]]:
    """Return, for each figure that the rounds have, its median and the most that it should be."""
    return {
        name: {"median": round(statistics.median(single[name] for single in rounds), 3), "goal": goals.get(name)}
        for name in rounds[0]
    }


def _at(number: int, index: int) -> float:
    return 1_795_250_921.2221591 + number * 60 + index * 0.137
