"""The state of one Spark application: everything keyed by numbers that the next application counts from 0 again.

A script may stop its application and start another, in a loop over days, say. An id of the first then means something
else, so everything keyed by RDD, broadcast variable, expression or DataFrame has one owner, which is dropped whole.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.identity.functions import FunctionReader
from airflow_provider.spark.jvm.live_plans import LivePlans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.identity.recovery_point import PinnedSource, RecoveryPoint
    from airflow_provider.spark.jvm.commit_gate import CommitGate
    from airflow_provider.spark.jvm.plan_walk import ClassShape
    from airflow_provider.spark.jvm.sources import LocalRows


@dataclass
class ApplicationState:
    """What is known of one application.

    :ivar local_data: RDD id → rows given to ``createDataFrame``
    :ivar broadcasts: broadcast id → where its pickled value is
    :ivar ranges: expression ids of ranges for which the script left the number of slices open
    :ivar shapes: JVM class → what it holds
    :ivar cached: number of a cached frame's plan → what stands for the frame in all attempts
    :ivar cached_under: number of a cached frame's plan → the session's settings when the script cached the frame
    :ivar frames: cached frames that nobody has looked at yet: session, and weak reference to the ``InMemoryRelation``
    :ivar points: vertex → the recovery point as the script reached it
    :ivar plans: the frames that read stored vertices
    :ivar left: vertices that were partly lost, or released; completed as soon as another one that reads them is
        computed
    :ivar refused: vertex → the failure after which it is not restarted, for all threads that wait for it
    :ivar recomputed: vertices that a failover has computed again, so that older DataFrames read partitions that are
        gone
    :ivar sources: the pinned sources that the script has reached, by coordinator name
    :ivar resets: how often sources were pinned anew in the middle of the attempt
    :ivar outdated: vertices that read files before such a reset
    :ivar again: vertex → function that reaches its recovery point once more, as the script did
    :ivar renewed: outdated vertex → token of the one that has replaced it
    :ivar looks: how often the script has looked at rows of DataFrames or written some
    :ivar lacks: through Arrow or not → what it lacks to store partitions; empty text for nothing
    :ivar writes_to_s3: whether Spark's own writes to an event store on S3 arrive; ``None`` until asked
    :ivar gates: the gate before the commits of its file writes; ``None`` if there can be none; empty until asked
    :ivar shuffles: Spark's shuffle id → its vertex, even if another shuffle's map outputs are kept
    :ivar functions: tells Python functions apart
    """

    local_data: dict[int, LocalRows] = field(default_factory=dict)
    broadcasts: dict[int, Any] = field(default_factory=dict)
    ranges: set[int] = field(default_factory=set)
    shapes: dict[str, ClassShape] = field(default_factory=dict)
    cached: dict[int, str] = field(default_factory=dict)
    cached_under: dict[int, Mapping[str, str]] = field(default_factory=dict)
    frames: deque[tuple[Any, Any]] = field(default_factory=deque)
    points: dict[str, RecoveryPoint] = field(default_factory=dict)
    plans: LivePlans = field(default_factory=LivePlans)
    left: set[str] = field(default_factory=set)
    refused: dict[str, Exception] = field(default_factory=dict)
    recomputed: set[str] = field(default_factory=set)
    sources: dict[str, PinnedSource] = field(default_factory=dict)
    resets: int = 0
    outdated: set[str] = field(default_factory=set)
    again: dict[str, Callable[[], DataFrame]] = field(default_factory=dict)
    renewed: dict[str, str] = field(default_factory=dict)
    looks: int = 0
    lacks: dict[bool, str] = field(default_factory=dict)
    writes_to_s3: bool | None = None
    gates: list[CommitGate | None] = field(default_factory=list)
    shuffles: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.functions = FunctionReader(self.broadcasts)


class CurrentApplication:
    """The script's current application; it ends when PySpark has another ``SparkContext``, or none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: weakref.ref[Any] | None = None
        self._state = ApplicationState()

    def state(self) -> ApplicationState:
        """Return the state of the current application."""
        from pyspark import SparkContext

        now = SparkContext._active_spark_context
        with self._lock:
            if now is not (self._context() if self._context is not None else None):
                self._context = weakref.ref(now) if now is not None else None
                self._state = ApplicationState()
            return self._state
