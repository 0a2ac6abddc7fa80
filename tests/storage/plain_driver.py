"""A driver without Spark, as a process: four vertices of four partitions, each the sum of the ones below.

It does what a driver does, with the driver's own modules, and notes each partition that it computes. One vertex,
``drawn``, is not deterministic: each computation of it draws a number anew, and what reads it shows which one.
"""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider.core.causes import causes, one_line
from airflow_provider.core.errors import CorruptObject, ObjectNotFound, RecoveryError
from airflow_provider.core.events import VertexInitialized
from airflow_provider.core.faults import AFTER_SINK_COMMIT, FAULT, fault_point
from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from airflow_provider.core.partitions import StoredPartition, incarnation
from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.job_master import JobMaster
from airflow_provider.spark.points.partition_io import Place, store_partition, stored_rows
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.uris import open_store

VERTICES: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "drawn": ("b",), "c": ("a", "drawn")}
DRAWN = "drawn"
PARTITIONS = 4
LAYOUT = "rows"
LARGE = 17 * 1024**2
"""Bytes of padding in one partition, so many that it is uploaded in parts."""
JOB = JobId(("plain",))
SCHEMA = pa.schema([("number", pa.int64()), ("padding", pa.binary())])

Rows = dict[str, dict[int, int]]
"""The one number of each partition of each vertex."""


def rows(name: str, index: int, below: Rows) -> int:
    """What a partition holds, less what is drawn: a number that tells whether everything below was right."""
    return 1 + index + 10 * sum(sum(below[vertex].values()) for vertex in VERTICES[name])


def is_right(found: Rows) -> bool:
    """Whether all is there, every number follows from those below, and one draw is behind all of ``drawn``."""
    if [*found] != [*VERTICES] or any(set(numbers) != set(range(PARTITIONS)) for numbers in found.values()):
        return False
    draws = {name: {found[name][i] - rows(name, i, found) for i in range(PARTITIONS)} for name in VERTICES}
    return all((len(found) == 1 and min(found) > 0) if name == DRAWN else found == {0} for name, found in draws.items())


@dataclass
class Script:
    """What a user's script would do, one vertex after another."""

    master: JobMaster
    partitions: PartitionStore
    log: Path
    padding: int
    found: Rows = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    tasks: int = 0

    def run(self) -> None:
        master = self.master
        if master.coordinator("step/threshold") is None:
            master.remember("step/threshold", {"result": 5})
        for name in VERTICES:
            while not self.vertex(name):
                logging.warning("%s is restarted, as a failover does", name)
            if name == "b" and not any(attempt.restarts for attempt in master.graph.attempts.values()):
                error = RuntimeError("by chance")
                master.failed_vertex(self.identities[name], one_line(error), causes(error), (), ["a", "b"])

    def vertex(self, name: str) -> bool:
        """Keep what survived of a vertex and compute the rest; ``False`` if something that survived is damaged."""
        master, deterministic = self.master, name != DRAWN
        drawn = [self.incarnations[vertex] for vertex in VERTICES[name] if vertex in self.incarnations]
        identity = self.identities[name] = "-".join([name, *drawn])
        kept = master.survivors_of(identity, LAYOUT, PARTITIONS, deterministic)
        known = master.vertex(identity)
        again = tuple(i for i in known.partitions if i not in kept) if known is not None else ()
        if again:
            master.partitions_reset(identity, again, "it cannot be kept in part")
        master.vertex_initialized(
            VertexInitialized(
                epoch=master.epoch,
                vertex=identity,
                name=name,
                fingerprint=identity,
                parallelism=PARTITIONS,
                layout=LAYOUT,
                deterministic=deterministic,
                upstream=tuple(self.identities[vertex] for vertex in VERTICES[name]),
            )
        )
        self.found[name] = {}
        draw = 0 if deterministic else 1_000_000 * random.SystemRandom().randrange(1, 1_000_000)
        stored = dict(kept)
        for index in range(PARTITIONS):
            if index in kept:
                try:
                    self.found[name][index] = self.read(kept[index])
                except (CorruptObject, ObjectNotFound):
                    master.give_up(kept[index].key)
                    return False
                master.partition_finished(kept[index])
                continue
            with self.log.open("a") as file:
                file.write(f"{master.epoch} {name} {index}\n")
            self.found[name][index] = rows(name, index, self.found) + draw
            partition = self.store(identity, name, index)
            if partition is not None:  # else the job goes on, this partition unrecorded
                stored[index] = partition
                master.partition_finished(partition)
        if not master.graph.vertices[identity].missing:
            master.vertex_finished(identity)
        if not deterministic:
            keys = [stored[i].key if i in stored else f"not stored: {self.found[name][i]}" for i in range(PARTITIONS)]
            self.incarnations[name] = incarnation(keys)
        return True

    def store(self, identity: str, name: str, index: int) -> StoredPartition | None:
        self.tasks += 1
        place = Place(identity, LAYOUT, index, PARTITIONS, self.master.epoch, self.tasks)
        padding = random.Random(index).randbytes(self.padding if (name, index) == ("b", 1) else 0)
        batch = pa.RecordBatch.from_pylist([{"number": self.found[name][index], "padding": padding}], SCHEMA)
        schema = SCHEMA.serialize().to_pybytes()
        partition, error = store_partition(lambda: self.partitions, place, iter([batch]), schema)
        if error:
            logging.warning("%s %d is not stored: %s", name, index, error)
        return None if error else partition

    def read(self, partition: StoredPartition) -> int:
        batches: Iterator[pa.RecordBatch] = stored_rows(self.partitions, partition)
        return int(next(batches).column(0)[0].as_py())


def run_job(store: ObjectStore, request: RunRequest, log: Path, padding: int = 0) -> Rows:
    """One attempt, from the claim to the end; return the rows of each vertex, nothing if the job had succeeded."""
    master = JobMaster(request, store, on_fenced=lambda _: None)
    if not master.start():
        master.acknowledge()
        return {}
    script = Script(master, PartitionStore(store, master.prefix), log, padding)
    try:
        script.run()
        fault_point(AFTER_SINK_COMMIT)  # an output stands outside of the store, and nobody has heard of it
        master.remember("sink/output", {"status": "WRITTEN", "attempt": master.epoch})
    except RecoveryError as error:
        master.failed(one_line(error))
        raise
    master.finished()
    return script.found


def request_for(event_store: str, options: Mapping[str, Any], timeout: str = "1 s") -> RunRequest:
    """A job whose driver flushes and takes snapshots as often as it can, and hardly waits for a store that is away.

    :param timeout: how long a heartbeat has to stand still; a third of it lies between two beats
    """
    recovery = {
        "write_buffer_flush_interval": "5 ms",
        "snapshot_min_pause": 0,
        "previous_worker_recovery_timeout": timeout,
        "ownership_timeout": "200 ms",
    }
    return RunRequest(
        event_store=event_store,
        job=JOB,
        application="plain",
        options=RecoveryOptions.from_mapping(recovery),
        storage=StorageOptions.from_mapping(options),
        keep_partitions=True,
    )


def run_attempt(
    event_store: str, options: Mapping[str, Any], log: Path, printed: Path, fault: str, padding: int
) -> None:
    """One attempt in a process of its own, which may be killed at *fault*; writes its rows to *printed*, as JSON."""
    os.environ[FAULT] = fault
    with log.with_suffix(".log").open("a") as file:
        os.dup2(file.fileno(), 2)
    request = request_for(event_store, options)
    found = run_job(open_store(event_store, request.storage), request, log, padding)
    printed.write_text(json.dumps(found))
