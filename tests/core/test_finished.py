"""Fully finished, partially finished, running: told apart, and validated before anything is reused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("producer", [[], [partition("a", 0)]], ids=["running", "partially finished"])
def test_what_is_partially_finished_reads_only_what_was(producer: list[ev.JobEvent]) -> None:
    """FLIP-147's second rule: no partition of it can have been computed before."""
    g = graph(initialized("a"), *producer, initialized("b", "a"), partition("b", 1))
    assert contradiction(g) == "b has finished in part, but a, which it reads, never has"
    assert contradiction(decode_graph(encode_graph(g))) == contradiction(g)
    assert contradiction(graph(initialized("a"), *producer, initialized("b", "a"))) == ""


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


@dataclasses.dataclass
class Script:
    """What the product can record of a script with four recovery points, whatever happens to it: each reads those
    before it that could be stored.

    :ivar draw: what happens next
    """

    draw: st.DataObject
    graph: ExecutionGraph = dataclasses.field(default_factory=ExecutionGraph)
    epoch: int = 0

    def happens(self, what: str) -> bool:
        return self.draw.draw(st.booleans(), label=what)

    def attempt(self) -> Iterator[ev.JobEvent]:
        """The events of an attempt that runs to the script's end; it may end behind each of them."""
        self.epoch += 1
        yield ev.AttemptStarted(epoch=self.epoch, fresh=self.epoch > 1 and self.happens("a fresh start"))
        for name in list(self.graph.vertices):
            if self.graph.vertices[name].partitions and self.happens(f"a partition of {name} is lost"):
                yield ev.PartitionsReset(epoch=self.epoch, vertex=name, indexes=(0,), reason="lost")
        met: list[str] = []
        for name in "abcd":
            if not self.happens(f"{name} can be stored"):
                continue
            yield from self.compute(name, tuple(met))
            if met and self.happens(f"{name} restarts {met[0]}"):
                yield ev.PartitionsReset(epoch=self.epoch, vertex=met[0], indexes=(), reason="restarted")
                yield from self.compute(met[0], ())
            if self.graph.vertices[name].finished:
                met.append(name)

    def compute(self, name: str, upstream: tuple[str, ...]) -> Iterator[ev.JobEvent]:
        known = self.graph.vertices.get(name)
        upstream = known.initialized.upstream if known is not None and not upstream else upstream
        layout = "m" if self.happens(f"{name} is cut differently") else "l"
        if known is None or not known.finished or known.initialized.layout != layout:
            told = initialized(name, *upstream)
            yield dataclasses.replace(told, epoch=self.epoch, layout=layout)
            for index in self.graph.vertices[name].missing:
                yield dataclasses.replace(partition(name, index), epoch=self.epoch, layout=layout)
            if self.happens(f"{name} is sealed"):
                yield ev.VertexFinished(epoch=self.epoch, vertex=name, layout=layout)
        else:
            yield ev.VertexReused(epoch=self.epoch, vertex=name, layout=layout)


@given(st.data())
def test_no_history_that_the_product_makes_contradicts_itself(data: st.DataObject) -> None:
    """Killed, restarted, with lost partitions, lost records, fresh starts, other layouts and recovery points that could
    not be stored, in any mixture.
    """
    script = Script(data)
    for _ in range(data.draw(st.integers(1, 4), label="attempts")):
        for event in script.attempt():
            script.graph.apply(event)
            assert contradiction(script.graph) == ""
            if script.happens("the driver dies"):
                break
        if script.happens("a block is lost"):
            script.graph.lose(Loss(block=1, epoch=script.epoch))


@given(st.data())
def test_no_lost_records_make_a_contradiction(data: st.DataObject) -> None:
    """Whatever is lost of what the product has written, in whichever attempt: what is left is no reason to give up."""
    script, written = Script(data), list[ev.JobEvent]()
    for _ in range(data.draw(st.integers(1, 3), label="attempts")):
        for event in script.attempt():
            script.graph.apply(event)
            written.append(event)
            if script.happens("the driver dies"):
                break
    first = data.draw(st.integers(1, len(written)), label="first that is lost")
    behind = data.draw(st.integers(first, len(written)), label="first behind it")
    left = replay(written[:first])
    left.lose(Loss(block=1, epoch=written[first - 1].epoch))
    for event in written[behind:]:
        left.apply(event)
        assert contradiction(left) == ""
