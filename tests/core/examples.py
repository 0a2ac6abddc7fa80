"""Events, graphs and reports of small jobs, and strategies for any event and any options."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.events import (
    MOST_PARTITIONS,
    JobEvent,
)
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.options import RecoveryOptions, StorageOptions

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "str": st.text(),
    "bool": st.booleans(),
    "tuple[int, ...]": st.lists(st.integers()).map(tuple),
    "tuple[str, ...]": st.lists(st.text()).map(tuple),
    "dict[str, str]": st.dictionaries(st.text(), st.text(), max_size=4),
    "dict[str, Any]": st.dictionaries(st.text(), _json, max_size=4),
}


def any_event(kind: type[JobEvent]) -> st.SearchStrategy[JobEvent]:
    bounded = {"parallelism": st.integers(0, MOST_PARTITIONS)}
    fields = {field.name: bounded.get(field.name, _VALUES[str(field.type)]) for field in dataclasses.fields(kind)}
    return st.builds(kind, **fields)


KINDS = JobEvent.__subclasses__()


events = st.one_of([any_event(kind) for kind in KINDS])


def start(epoch: int = 1, **fields: object) -> ev.AttemptStarted:
    return ev.AttemptStarted(epoch=epoch, at=float(epoch), **fields)  # type: ignore[arg-type]


def init(epoch: int = 1, vertex: str = "v", parallelism: int = 2, layout: str = "l", **fields: object) -> ev.JobEvent:
    return ev.VertexInitialized(
        epoch=epoch,
        vertex=vertex,
        name=str(fields.pop("name", vertex)),
        fingerprint="f",
        parallelism=parallelism,
        layout=layout,
        deterministic=True,
        **fields,  # type: ignore[arg-type]
    )


def done(index: int, epoch: int = 1, vertex: str = "v", layout: str = "l", **fields: object) -> ev.PartitionFinished:
    return ev.PartitionFinished(
        epoch=epoch,
        vertex=vertex,
        layout=layout,
        index=index,
        key=str(fields.pop("key", f"{vertex}/{index}/{epoch}")),
        rows=10,
        bytes=100,
        checksum="c",
        duration=2.0,
        attempt=int(str(fields.pop("attempt", epoch))),
    )


def end(epoch: int = 1, vertex: str = "v", layout: str = "l") -> ev.VertexFinished:
    return ev.VertexFinished(epoch=epoch, vertex=vertex, layout=layout)


HISTORY = [
    start(1), init(1, "a-f", name="a"), done(0, 1, "a-f"), done(1, 1, "a-f"), end(1, "a-f"),
    init(1, "b-f", 3, name="b"), done(0, 1, "b-f"),
    init(1, "old-f", name="old"), done(0, 1, "old-f"),
    start(2, reason="attempt 1 was lost"), ev.VertexReused(epoch=2, vertex="a-f", layout="l"),
    init(2, "b-f", 3, name="b"), done(1, 2, "b-f"), done(2, 2, "b-f"),
    ev.VertexFinished(epoch=2, vertex="b-f", layout="l", storing_seconds=1.5),
    ev.VertexSkipped(epoch=2, name="c", reason="not deterministic"),
    ev.JobFinished(epoch=2, at=9.0),
]  # fmt: skip


PLAUSIBLE = [
    start(1), start(2), start(3, fresh=True, reason="cleared"), init(1), init(2), init(2, layout="m"), init(3, "w"),
    init(1, "w", layout_spec={"files": [["a", 1]], "of": {"b": None}}, upstream=("v",), parts={"plan": "x"}),
    done(0, key="partitions/v/l/000000"), done(1, key="./x"), done(0, vertex="w", key=""),
    done(1, key="/partitions/v/l/1"),
    *(done(index, epoch, vertex) for index in (0, 1) for epoch in (1, 2, 3) for vertex in "vw"),
    end(1), end(2), end(3, "w"), ev.VertexReused(epoch=2, vertex="v", layout="l"),
    ev.PartitionsReset(epoch=2, vertex="v", indexes=(1,), reason="lost"),
    ev.VertexSkipped(epoch=1, at=3.5, name="n", reason="r"), ev.VertexSkipped(epoch=2, name="n", reason="r"),
    ev.SparkApplicationStarted(epoch=1, application_id="app", ui_url="u"), ev.JobStateChanged(epoch=1, state="RUNNING"),
    ev.JobFailed(epoch=1, at=9.25, error='boom \u2028 "\ud800"'), ev.JobFinished(epoch=3, at=1e300),
]  # fmt: skip
"""Events that mostly fit each other, so that graphs come to hold something."""


def state_of(graph: ExecutionGraph) -> object:
    """All that a graph knows, in its order."""
    return (
        list(graph.attempts.items()), list(graph.vertices.items()), graph.base_epoch, graph.problems,
        graph.coordinators, [list(vertex.partitions) for vertex in graph.vertices.values()],
    )  # fmt: skip


_durations = st.floats(0, 1e300) | st.floats(0, 1e-4)


_recovery = st.builds(
    RecoveryOptions,
    enabled=st.booleans(),
    previous_worker_recovery_timeout=_durations.filter(bool),
    write_buffer_size=st.integers(0, 2**50),
    write_buffer_flush_interval=_durations,
    snapshot_min_pause=_durations,
    retention=_durations.filter(bool),
    resume=st.sampled_from(["auto", "never"]),
)


_words = st.text(st.characters(categories=["L", "N", "P"]), max_size=10)


_storage = st.builds(
    StorageOptions,
    endpoint_url=st.sampled_from(["", "http://127.0.0.1:9000", "https://s3.example.com/path"]),
    region=_words,
    addressing_style=st.sampled_from(["auto", "path", "virtual"]),
    sse=st.sampled_from(["", "AES256", "aws:kms"]),
    sse_kms_key_id=_words,
    checksum=st.sampled_from(["when_required", "when_supported"]),
    ca_bundle=_words,
)


any_recovery_options, any_storage_options = _recovery, _storage
