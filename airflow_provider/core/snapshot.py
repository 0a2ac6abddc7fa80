"""Encode and decode a snapshot of the execution graph: the fold of all events up to a block, as lines of JSON.

Replaying a snapshot and the events after it gives the same graph as replaying all events, wherever the cut is. A
snapshot also holds the state that only the driver knows (:attr:`ExecutionGraph.coordinators`).

Source: FLIP-383's snapshots of operator coordinators, taken when a vertex ends or after a minimum pause.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from airflow_provider.core.errors import EventFormatError
from airflow_provider.core.events import (
    MOST_PARTITIONS_OF_JOB,
    VertexInitialized,
    VertexSkipped,
    decode_event,
    encode_event,
)
from airflow_provider.core.graph import Attempt, ExecutionGraph, JobState, Vertex
from airflow_provider.core.partition_record import PartitionRecord, Tally
from airflow_provider.core.partitions import FOLDER

GROWTH = 8
"""A snapshot pays once at least one event for this many records of the last one is new, …"""
MANY_BLOCKS = 100
"""… or once a replay would have to fetch so many blocks."""

_OF_THE_JOB = ("base_epoch", "problems", "abandoned", "gap", "coordinators")
_MOST_HELD = "most_held"


def is_due(*, new: int, held: int, blocks: int, elapsed: float, min_pause: float, vertex_ended: bool) -> bool:
    """Whether a snapshot is worth its cost.

    Each snapshot holds the whole graph; writing one whenever a vertex ends would take quadratic time in the number of
    vertices. So the graph must have grown by a fixed share, or many blocks must have been written since the last one.

    :param new: events since the last snapshot
    :param held: records that it held
    :param blocks: blocks written since
    :param elapsed: seconds since
    :param vertex_ended: whether a vertex has ended since
    """
    if not new or not (vertex_ended or elapsed >= min_pause):
        return False
    return new * GROWTH >= held or blocks >= MANY_BLOCKS


def graph_size(graph: ExecutionGraph) -> int:
    """Return the number of records that a snapshot of *graph* holds."""
    return len(graph.attempts) + len(graph.vertices) + sum(len(v.partitions) for v in graph.vertices.values())


def encode_graph(graph: ExecutionGraph) -> list[str]:
    """Return *graph* as lines of JSON: the job, its attempts, its vertices, in the graph's order."""
    job = {name: getattr(graph, name) for name in (*_OF_THE_JOB, _MOST_HELD)}
    attempts = ({**_plain(attempt), "kind": "attempt"} for attempt in graph.attempts.values())
    vertices = ({**_vertex(vertex), "kind": "vertex"} for vertex in graph.vertices.values())
    return [_line({**job, "kind": "job"}), *map(_line, attempts), *map(_line, vertices)]


def decode_graph(lines: Iterable[str]) -> ExecutionGraph:
    """Read what :func:`encode_graph` wrote, one line at a time: a large job's snapshot takes hundreds of megabytes.

    :raises EventFormatError: the lines are not in that form
    """
    try:
        records = (json.loads(line) for line in lines)
        job: dict[str, Any] = next(records, {})
        if job.pop("kind") != "job":
            raise EventFormatError("A snapshot does not begin with the job.")
        graph = ExecutionGraph()
        for name in _OF_THE_JOB:
            setattr(graph, name, job[name])
        for record in records:
            kind = record.pop("kind")
            if kind == "attempt":
                attempt = _read_attempt(record)
                graph.attempts[attempt.epoch] = attempt
            elif kind == "vertex":
                vertex = _read_vertex(record)
                graph.vertices[vertex.initialized.vertex] = vertex
                graph.claimed += vertex.initialized.parallelism
                graph.held += vertex.bytes
                if graph.claimed > MOST_PARTITIONS_OF_JOB:
                    raise EventFormatError(f"A snapshot claims more than {MOST_PARTITIONS_OF_JOB} partitions.")
            else:
                raise EventFormatError(f"A snapshot holds a record of the kind {kind!r}.")
        graph.most_held = max(int(job.get(_MOST_HELD, 0)), graph.held)  # older releases did not write it
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise EventFormatError(f"A snapshot cannot be read: {error!r}") from error
    return graph


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(attempt: Attempt) -> dict[str, Any]:
    return {**vars(attempt), "state": str(attempt.state), "skipped": [asdict(skip) for skip in attempt.skipped]}


def _read_attempt(record: dict[str, Any]) -> Attempt:
    skipped = [VertexSkipped(**skip) for skip in record.pop("skipped")]
    return Attempt(**{**record, "state": JobState(record["state"])}, skipped=skipped)


def _vertex(vertex: Vertex) -> dict[str, Any]:
    folder = _folder(vertex.initialized)
    return {
        "initialized": encode_event(vertex.initialized),
        "finished": vertex.finished,
        "has_finished": vertex.has_finished,
        "released": vertex.released,
        "reached_by": sorted(vertex.reached_by),
        "storing_seconds": list(vertex.storing_seconds.items()),
        "gone": vertex.gone,
        "partitions": [
            [index, _shorten(p.key, folder), facts.rows, p.bytes, facts.checksum, facts.duration, facts.attempt]
            for index, p in vertex.partitions.items()
            for facts in (p.facts,)
        ],
    }


def _read_vertex(record: dict[str, Any]) -> Vertex:
    initialized = decode_event(record["initialized"])
    if not isinstance(initialized, VertexInitialized):
        raise EventFormatError(f"A vertex in a snapshot begins with {type(initialized).__name__}.")
    folder = _folder(initialized)
    partitions = {
        index: (
            PartitionRecord.within(folder, key[1:], *told)
            if key[0] == _INSIDE and "/" not in key
            else PartitionRecord.of((folder if key[0] == _INSIDE else "") + key[1:], *told)
        )
        for index, key, *told in record["partitions"]
    }
    return Vertex(
        initialized,
        partitions,
        record["finished"],
        record["has_finished"],
        released=record.get("released", False),
        reached_by=set(record["reached_by"]),
        storing_seconds=dict(record.get("storing_seconds", [])),
        gone=Tally(*record["gone"]) if record.get("gone") else None,
    )


_INSIDE, _ELSEWHERE = ".", "/"
"""Before a partition's key: it is in its vertex's folder, which is left out, or it is somewhere else."""


def _folder(vertex: VertexInitialized) -> str:
    return f"{FOLDER}/{vertex.vertex}/{vertex.layout}/"


def _shorten(key: str, folder: str) -> str:
    return _INSIDE + key.removeprefix(folder) if key.startswith(folder) else _ELSEWHERE + key
