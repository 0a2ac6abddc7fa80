"""Fully finished, partially finished, running: told apart, and validated before anything is reused."""

from __future__ import annotations

import dataclasses

import pytest

from airflow_provider.core import events as ev
from airflow_provider.core.classify import FinishedStatus, contradiction, finished_status
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.loss import Loss
from airflow_provider.core.snapshot import decode_graph, encode_graph
from tests.core.vertices import initialized
from tests.support.replaying import replay


def partition(name: str, index: int) -> ev.PartitionFinished:
    return ev.PartitionFinished(
        epoch=1,
        vertex=name,
        layout="l",
        index=index,
        key=f"{name}{index}",
        rows=1,
        bytes=1,
        checksum="",
        duration=1,
        attempt=1,
    )


def finished(name: str) -> list[ev.JobEvent]:
    return [partition(name, 0), partition(name, 1), ev.VertexFinished(epoch=1, vertex=name, layout="l")]


def graph(*events: ev.JobEvent) -> ExecutionGraph:
    return replay([ev.AttemptStarted(epoch=1), *events])


def test_the_three_classes() -> None:
    """All partitions sealed, some stored, none."""
    g = graph(initialized("a"), *finished("a"), initialized("b", "a"), partition("b", 0), initialized("c", "b"))
    assert [finished_status(v) for v in g.vertices.values()] == [
        FinishedStatus.FULLY_FINISHED,
        FinishedStatus.PARTIALLY_FINISHED,
        FinishedStatus.RUNNING,
    ]
    assert contradiction(g) == ""


@pytest.mark.parametrize("producer", [[], [partition("a", 0)]], ids=["running", "partially finished"])
def test_what_is_fully_finished_reads_only_what_was(producer: list[ev.JobEvent]) -> None:
    """Otherwise the message names both."""
    g = graph(initialized("a"), *producer, initialized("b", "a"), *finished("b"))
    assert contradiction(g) == "b has finished, but a, which it reads, never has"
    assert contradiction(decode_graph(encode_graph(g))) == contradiction(g)


def test_what_was_lost_since_is_no_contradiction() -> None:
    """An optional vertex: its partitions are gone, but all that reads it is finished."""
    g = graph(initialized("a"), *finished("a"), initialized("b", "a"), *finished("b"))
    g.apply(ev.PartitionsReset(epoch=1, vertex="a", indexes=(1,), reason="lost"))
    assert finished_status(g.vertices["a"]) is FinishedStatus.PARTIALLY_FINISHED
    assert contradiction(g) == ""
    assert contradiction(decode_graph(encode_graph(g))) == ""


def test_lost_records_are_no_contradiction() -> None:
    """The end of the producer may have been in the block that is lost."""
    g = graph(initialized("a"))
    g.lose(Loss(block=2, epoch=1))
    for event in (initialized("b", "a"), *finished("b")):
        g.apply(event)
    assert contradiction(g) == ""


def test_a_shuffle_that_was_kept_in_part_is_no_contradiction() -> None:
    """What reads it reads Spark's own files, and may be kept whole."""
    low = dataclasses.replace(initialized("a"), rule=ev.SHUFFLE)
    assert contradiction(graph(low, partition("a", 0), initialized("b", "a"), *finished("b"))) == ""
