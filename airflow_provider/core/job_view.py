"""Build the recovery page's view of a job: plain values, ready for JSON, small for a job of any size.

One pass over the partitions. The numbers are those of :mod:`airflow_provider.core.report`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

from airflow_provider.core.committed_output import doubts
from airflow_provider.core.events import SHUFFLE, STEP, STREAMING
from airflow_provider.core.graph import Attempt, ExecutionGraph, Vertex
from airflow_provider.core.history import JobHistory
from airflow_provider.core.overhead import overhead_of
from airflow_provider.core.report import LOST as LOST_ATTEMPT
from airflow_provider.core.report import skipped
from airflow_provider.core.savings import NO_WORK, Work, not_reusable, retry_savings, reusable, work_so_far
from airflow_provider.core.unfinished_write import writes_going_on

REUSED, COMPUTED, MISSING, LOST = "r", "c", "m", "l"
_WORST_FIRST = LOST + MISSING + COMPUTED + REUSED
MOST_CELLS = 120_000
"""Cells of all grids together; a larger job shows several partitions in a cell."""
MOST_VERTICES = 200
MOST_ATTEMPTS = 50
MOST_TEXT = 600
"""Characters of an error or a reason."""
GONE = ("SUPERSEDED", "RELEASED")
"""States of vertices that nothing asks for any more, and that are left out of sums over partitions."""
_MOST_REASONS = 8
_STEPS = (STEP, STREAMING)
"""With what the coordinators of ``step`` and ``streaming`` begin."""
MOST_ROWS = 300
"""Task instances that are listed."""


def partition_states(vertex: Vertex, epoch: int, lost: Collection[int] = ()) -> str:
    """Return one letter for each partition.

    ``r``: reused from an earlier attempt; ``c``: computed by attempt *epoch*; ``l``: lost after it was stored, to be
    computed again; ``m``: not computed yet.

    :param lost: indexes that were given up, whether or not they were stored again since
    """
    states = [MISSING] * vertex.initialized.parallelism
    if vertex.has_finished and not vertex.released:
        states = [LOST] * vertex.initialized.parallelism
    for index in lost if not vertex.released else ():
        if index < len(states):
            states[index] = LOST
    for index, partition in vertex.partitions.items():
        states[index] = COMPUTED if partition.attempt >= epoch else REUSED
    return "".join(states)


def encode_runs(states: str) -> str:
    """Return the states as runs of a letter and its count: ``r8c3m`` is eight reused, three computed, one missing
    partition.
    """
    runs = ((letter, sum(1 for _ in run)) for letter, run in groupby(states))
    return "".join(letter if length == 1 else f"{letter}{length}" for letter, length in runs)


def merge_cells(states: str, size: int) -> str:
    """Return one letter for each *size* partitions: the most important state among them."""
    if size <= 1:
        return states
    cells = (states[start : start + size] for start in range(0, len(states), size))
    return "".join(min(cell, key=_WORST_FIRST.index) for cell in cells)


def job_view(job: str, graph: ExecutionGraph, history: JobHistory) -> dict[str, Any]:
    """Return the view of a job.

    Times are seconds since the Unix epoch, ``None`` for an end that was not recorded; sizes are bytes. ``cells`` of a
    vertex is the output of :func:`airflow_provider.core.job_view.encode_runs`, with ``cell_size`` partitions per cell.
    Sums are over the vertices that the newest attempt reached, as in the report.
    """
    newest = graph.newest
    epoch = newest.epoch if newest is not None else 0
    shown = list(graph.vertices.items())[-MOST_VERTICES:]
    partitions = sum(vertex.initialized.parallelism for _, vertex in shown)
    size = max(1, -(-partitions // MOST_CELLS))
    running = newest is not None and not newest.state.terminal
    reached_names = {vertex.initialized.name for _, vertex in shown if epoch in vertex.reached_by}
    because = not_reusable(graph)
    work = work_so_far(graph, because)
    vertices = [
        _vertex(identity, vertex, epoch, size, history, because, work.get(identity, NO_WORK))
        | {"state": _state(vertex, epoch, running, vertex.initialized.name in reached_names)}
        for identity, vertex in shown
    ]
    current = [vertex for vertex in vertices if vertex["state"] not in GONE]
    reached = [vertex for vertex in vertices if vertex["reached"]]
    attempts = sorted(graph.attempts.items())[-MOST_ATTEMPTS:]
    retry, skips = retry_savings(graph, because, work), skipped(newest.skipped if newest is not None else [])
    return {
        "job": job,
        "state": str(newest.state) if newest is not None else "NONE",
        "attempt": epoch,
        "partitions": sum(vertex["partitions"] for vertex in current),
        "stored": sum(vertex["reused"] + vertex["computed"] for vertex in current),
        "reused": sum(vertex["reused"] for vertex in reached),
        "computed": sum(vertex["computed"] for vertex in reached),
        "bytes_reused": sum(vertex["bytes_reused"] for vertex in reached),
        "task_seconds_saved": round(sum(vertex["task_seconds_saved"] for vertex in reached), 3),
        "task_seconds": round(sum(vertex["task_seconds"] for vertex in reached), 3),
        "bytes_held": graph.held,
        "most_bytes_held": graph.most_held,
        "overhead": overhead_of(graph.coordinators, epoch),
        "retry": asdict(retry) | {"nothing_because": _cut(retry.nothing_because)},
        "abandoned": sum(attempt.abandoned for attempt in graph.attempts.values()),
        "vertices": vertices,
        "vertices_omitted": len(graph.vertices) - len(shown),
        "attempts": [_attempt(attempt, attempt is newest) for _, attempt in attempts],
        "attempts_omitted": len(graph.attempts) - len(attempts),
        "kept": sorted(name for name in graph.coordinators if name.startswith(_STEPS))[:MOST_VERTICES],
        "skipped": [asdict(skip) | {"reason": _cut(skip.reason)} for skip in skips[-MOST_VERTICES:]],
        "doubts": [_cut(doubt) for doubt in doubts(graph.coordinators)[:20]],
        "going_on": [_cut(sentence) for sentence in writes_going_on(graph.coordinators, epoch)[:20]],
        "problems": [_cut(problem) for problem in graph.problems[:20]],
        "events": [
            {
                "at": told.at,
                "until": told.until,
                "attempt": told.epoch,
                "level": logging.getLevelName(told.level),
                "text": _cut(told.text),
            }
            for told in reversed(history.events)
        ],
    }


def _vertex(
    identity: str, vertex: Vertex, epoch: int, size: int, history: JobHistory, because: Mapping[str, str], work: Work
) -> dict[str, Any]:
    told = vertex.initialized
    states = partition_states(vertex, epoch, history.lost.get(identity, ()))
    tally = vertex.tally(epoch)
    would_reuse, would_save = reusable(identity, vertex, because)
    return {
        "id": identity,
        "name": told.name,
        "shuffle": told.rule == SHUFFLE,
        "upstream": list(told.upstream),
        "reached": epoch in vertex.reached_by,
        "deterministic": told.deterministic,
        "partitions": told.parallelism,
        "reused": tally.reused,
        "computed": tally.computed,
        "lost": states.count(LOST),
        "missing": states.count(MISSING),
        "cells": encode_runs(merge_cells(states, size)),
        "cell_size": size,
        "rows": vertex.rows,
        "bytes": vertex.bytes,
        "bytes_reused": tally.bytes_reused,
        "task_seconds": tally.seconds,
        "task_seconds_saved": tally.seconds_saved,
        "would_reuse": would_reuse,
        "would_save": round(would_save, 3),
        "work": asdict(work),
        "because": _cut_all(told.because if told.epoch == epoch else ()),
        "resets": [
            {"at": reset.at, "attempt": reset.epoch, "partitions": reset.partitions, "reason": _cut(reset.reason)}
            for reset in history.resets.get(identity, ())
        ],
    }


def _state(vertex: Vertex, epoch: int, running: bool, name_reached: bool) -> str:
    """Return a vertex's state as the newest attempt sees it.

    ``SUPERSEDED``: the script has reached another vertex of its name; ``RELEASED``: everything that reads it is
    committed; ``FINISHED``; ``RUNNING``: being computed or read back; ``WAITING``: not reached yet; ``INCOMPLETE``: the
    attempt ended and left it incomplete.
    """
    reached = epoch in vertex.reached_by
    if name_reached and not reached:
        return "SUPERSEDED"
    if vertex.released:
        return "RELEASED"
    if vertex.finished:
        return "FINISHED"
    if not running:
        return "INCOMPLETE"
    return "RUNNING" if reached else "WAITING"


def _attempt(attempt: Attempt, is_newest: bool) -> dict[str, Any]:
    return {
        "attempt": attempt.epoch,
        "state": str(attempt.state) if attempt.state.terminal or is_newest else LOST_ATTEMPT,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "last_event_at": attempt.last_event_at,
        "host": attempt.host,
        "application_id": attempt.application_id,
        "fresh": attempt.fresh,
        "abandoned": attempt.abandoned,
        "reason": _cut(attempt.reason),
        "error": _cut(attempt.error),
        "unrecoverable": attempt.unrecoverable,
        "restarts": attempt.restarts,
    }


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def _cut_all(texts: Iterable[str]) -> list[str]:
    found = list(texts)
    more = [f"and {len(found) - _MOST_REASONS} more"] if len(found) > _MOST_REASONS else []
    return [*map(_cut, found[:_MOST_REASONS]), *more]


def summary(view: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the key figures of a job for a single line (see :func:`airflow_provider.core.job_view.job_view`)."""
    if view is None:
        return None
    current = [vertex for vertex in view["vertices"] if vertex["state"] not in GONE]
    sums = {name: sum(vertex[name] for vertex in current) for name in ("reused", "computed", "lost", "missing")}
    kept = ("state", "attempt", "partitions", "stored", "reused", "computed", "bytes_reused", "task_seconds_saved")
    return {
        **{name: view[name] for name in kept},
        "stored_reused": sums["reused"],
        "stored_computed": sums["computed"],
        "lost": sums["lost"],
        "missing": sums["missing"],
        "retry": {name: value for name, value in view["retry"].items() if name != "others"},
    }
