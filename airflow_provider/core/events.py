"""The events that a driver writes into the job event store: versioned facts, one JSON object each.

An event is a frozen dataclass; its class name is its type on disk and :attr:`VERSION` its format version. Reading is
strict: an unknown type, a newer version or a missing field is an :class:`EventFormatError`, never a guess. Fields added
by a later release must have defaults, so that old histories can always be replayed.

Source: the ``JobEvent`` classes of Flink's FLIP-383 (``ExecutionJobVertexInitializedEvent``,
``ExecutionVertexFinishedEvent``, ``ExecutionVertexResetEvent``).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider.core.errors import EventFormatError

SHUFFLE = "shuffle"
"""The rule of a vertex that auto mode keeps: a shuffle, or a cached DataFrame."""
CACHED = "cached("
"""Begins the name of such a vertex if it is a cached DataFrame."""


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Base of all events.

    :ivar epoch: the attempt that wrote it, 1, 2, …
    :ivar at: seconds since the Unix epoch on the writer's clock; for people only, never used in decisions
    """

    VERSION: ClassVar[int] = 1
    epoch: int
    at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AttemptStarted(JobEvent):
    """A driver claimed the job. ``fresh`` forgets everything earlier; ``reason`` says why.

    :ivar abandoned: recovery was abandoned, because earlier records cannot be trusted; counts as a restart of the job
    :ivar another_run: the earlier records and outputs belong to another DAG run of the same name
    :ivar series: shared by attempts that are automatic retries of one another; empty text if unknown
    """

    VERSION: ClassVar[int] = 4

    fresh: bool = False
    abandoned: bool = False
    reason: str = ""
    application: str = ""
    host: str = ""
    another_run: bool = False
    series: str = ""


@dataclass(frozen=True, kw_only=True)
class JobStateChanged(JobEvent):
    """The attempt entered a new state: ``RECONCILING`` or ``RUNNING`` (Flink's ``JobStatus``)."""

    state: str


@dataclass(frozen=True, kw_only=True)
class SparkApplicationStarted(JobEvent):
    """The attempt's Spark application is up."""

    application_id: str
    ui_url: str = ""


MOST_PARTITIONS = 1_000_000
"""Of one vertex: whoever reads an event makes room for as many partitions as it claims. Spark's driver has no room for
more tasks in a stage either.
"""
MOST_PARTITIONS_OF_JOB = 10 * MOST_PARTITIONS
"""Of all vertices of a job together, for the same reason."""


@dataclass(frozen=True, kw_only=True)
class VertexInitialized(JobEvent):
    """A recovery point was reached and its layout is known.

    :ivar vertex: identity, ``<encoded name>-<fingerprint>``
    :ivar parallelism: number of partitions
    :ivar layout: digest of what each partition covers; partitions of different layouts never mix
    :ivar layout_spec: what a retry needs to pin the same layout again (plain JSON)
    :ivar deterministic: whether single partitions may be kept; otherwise the vertex is kept whole or not at all
    :ivar schema: Spark's JSON of the columns
    :ivar upstream: vertices this one reads
    :ivar parts: the named parts of the fingerprint, to explain later what has changed
    :ivar because: why it is computed although an earlier attempt stored it, or one of its name; one phrase each
    :ivar rule: :data:`SHUFFLE` for a shuffle that auto mode keeps, whose partitions are the outputs of its map tasks;
        empty text for a ``checkpoint`` of the script
    :ivar purposes: what the queries with this shuffle are for: outputs, by the names of their coordinators; empty text
        for a query that a retry runs again, or whose purpose is unknown
    """

    VERSION: ClassVar[int] = 4

    vertex: str
    name: str
    fingerprint: str
    parallelism: int
    layout: str
    deterministic: bool
    schema: str = ""
    upstream: tuple[str, ...] = ()
    parts: dict[str, str] = field(default_factory=dict)
    layout_spec: dict[str, Any] = field(default_factory=dict)
    because: tuple[str, ...] = ()
    rule: str = ""
    purposes: tuple[str, ...] = ()

    @property
    def counts_rows(self) -> bool:
        """Whether the rows of its partitions are known: Spark counts those of shuffles, not of cached partitions."""
        return not (self.rule == SHUFFLE and self.name.startswith(CACHED))


@dataclass(frozen=True, kw_only=True)
class PartitionFinished(JobEvent):
    """One partition is in the partition store.

    :ivar index: 0 … parallelism - 1
    :ivar key: object key below the job's prefix
    :ivar bytes: size of the object
    :ivar duration: seconds of task time spent on it
    :ivar attempt: the attempt that computed it; lower than ``epoch`` if a later attempt found it in the store
    """

    vertex: str
    layout: str
    index: int
    key: str
    rows: int
    bytes: int
    checksum: str
    duration: float
    attempt: int


@dataclass(frozen=True, kw_only=True)
class PartitionsReset(JobEvent):
    """Partitions no longer count as computed, for the given reason; empty ``indexes`` means all of them."""

    vertex: str
    indexes: tuple[int, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class VertexFinished(JobEvent):
    """Every partition of the vertex is stored and its events are confirmed.

    :ivar storing_seconds: task time that this attempt spent on encoding and storing its partitions
    """

    VERSION: ClassVar[int] = 2

    vertex: str
    layout: str
    storing_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class VertexReused(JobEvent):
    """The attempt reached the vertex and reuses all of it; replaces one event per partition."""

    vertex: str
    layout: str


@dataclass(frozen=True, kw_only=True)
class VertexReleased(JobEvent):
    """Everything that reads the vertex is committed: its partitions are deleted next and never used again."""

    vertex: str


@dataclass(frozen=True, kw_only=True)
class VertexSkipped(JobEvent):
    """The attempt reached a recovery point and did not store it, for the given reason."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class FailureHandled(JobEvent):
    """A vertex failed, and this is what is restarted (Flink's ``FailureHandlingResult``).

    :ivar vertex: what failed: a vertex, or an action, ``action/<its name>``; empty text if recovery of the whole job
        was abandoned
    :ivar error: one line
    :ivar restarted: vertices, and the action, that run again, upstream first; empty if nothing is restarted
    :ivar refused: why nothing is restarted
    :ivar delay: seconds before the restart
    :ivar memory: the restart strategy's memory from now on
    """

    vertex: str
    error: str
    restarted: tuple[str, ...] = ()
    refused: str = ""
    delay: float = 0.0
    memory: dict[str, Any] = field(default_factory=dict)


STEP, STREAMING, SOURCE = "step/", "streaming/", "source/"
"""What the coordinators of a script's steps, streaming queries and pinned sources are called, before their names."""
CHECKPOINT = "checkpoint/"
"""With what the names of the records of Spark's own checkpoints begin, among the coordinators."""


@dataclass(frozen=True, kw_only=True)
class CoordinatorSnapshot(JobEvent):
    """State that only the driver knows (Flink: operator coordinators): a pinned listing, a step's result, a query's
    state.

    :ivar coordinator: whose state it is, such as ``step/<name>`` (:data:`STEP`)
    :ivar state: plain JSON; replaces the earlier state
    """

    coordinator: str
    state: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class JobFinished(JobEvent):
    """The user's script ran to its end.

    :ivar store_retries: requests to the event store that the driver had to repeat
    """

    VERSION: ClassVar[int] = 2

    store_retries: int = 0


@dataclass(frozen=True, kw_only=True)
class JobFailed(JobEvent):
    """The user's script failed.

    :ivar error: one line
    :ivar unrecoverable: a retry cannot help until something is changed
    :ivar store_retries: requests to the event store that the driver had to repeat
    """

    VERSION: ClassVar[int] = 3

    error: str
    unrecoverable: bool = False
    store_retries: int = 0


_TYPES: dict[str, type[JobEvent]] = {cls.__name__: cls for cls in JobEvent.__subclasses__()}
_FIELDS = {cls: {item.name: str(item.type) for item in dataclasses.fields(cls)} for cls in _TYPES.values()}
"""What each field of an event is declared as."""
_RETIRED = {
    "AttemptStarted": ("spark_version",),
    "SparkApplicationStarted": ("default_parallelism",),
    "VertexFinished": ("upstream_seconds",),
}
"""Fields that nobody read, and that older releases have written."""


def encode_event(event: JobEvent) -> str:
    """Return the event as one line of JSON, keys sorted, without line breaks."""
    return _ENCODER.encode({**vars(event), "type": type(event).__name__, "version": event.VERSION})


def decode_event(line: str) -> JobEvent:
    """Read what :func:`encode_event` wrote.

    :raises EventFormatError: the line is not JSON, or has an unknown type, a newer version, or missing, unknown or
        mistyped fields
    """
    try:
        body = _DECODER.decode(line)
        name, version = body.pop("type"), body.pop("version")
        cls = _TYPES[name]
        _check_type(name, "version", version, "int")
        if version > cls.VERSION:
            raise EventFormatError(f"{name} has version {version}, this release reads up to {cls.VERSION}.")
        known = _FIELDS[cls]
        for key in _RETIRED.get(name, ()):
            body.pop(key, None)
        for key, value in body.items():
            declared = known[key]
            if type(value) is not _PLAIN_TYPES.get(declared):  # usually equal, and a large job has millions of them
                _check_type(name, key, value, declared)
                if isinstance(value, list):
                    body[key] = tuple(value)
        if cls is VertexInitialized and not 0 <= body.get("parallelism", 0) <= MOST_PARTITIONS:
            raise EventFormatError(f"{name} has {body['parallelism']} partitions, of {MOST_PARTITIONS} at most.")
        return cls(**body)
    except EventFormatError:
        raise
    except KeyError as error:
        raise EventFormatError(f"A record names {error} which this release does not know.") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise EventFormatError(f"A record cannot be read: {error}") from error


_PLAIN_TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}
"""A value of exactly this type needs no further look."""
_JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    **_PLAIN_TYPES,
    "float": (int, float),
    "tuple[int, ...]": list,
    "tuple[str, ...]": list,
    "dict[str, str]": dict,
    "dict[str, Any]": dict,
}
_ELEMENT_TYPES = {"tuple[int, ...]": "int", "tuple[str, ...]": "str", "dict[str, str]": "str"}


def _check_type(event: str, field_name: str, value: object, declared: str) -> None:
    expected = _JSON_TYPES[declared]
    if not isinstance(value, expected) or (isinstance(value, bool) and declared != "bool"):
        raise EventFormatError(f"{event}.{field_name} holds {value!r}, expected {declared}.")
    if declared in _ELEMENT_TYPES and isinstance(value, (list, dict)):
        for element in value.values() if isinstance(value, dict) else value:
            _check_type(event, field_name, element, _ELEMENT_TYPES[declared])


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


# Created once: the functions of module json create a new one per call.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_no_constant)
