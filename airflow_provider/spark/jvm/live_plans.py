"""Whether the script can still read a vertex, according to the garbage collectors of Python and the JVM.

Each frame that a recovery point returns has an object of its own in its plan: the name of the alias by which the plan
shows what it reads. Everything made of the frame holds the same object in its own plan: other frames, temporary views,
cached data. When the JVM has dropped the object, no plan is left that could read those partitions, and none can be
made.

Source: Spark's ``ContextCleaner``, which learns by weak references which shuffles and broadcasts are unreachable.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.queries import analyzed

_ROUNDS = 6
_PAUSE = 0.15
"""Seconds after which py4j, in a thread of its own, has told the JVM what Python has dropped."""
_NOTICE = 0.02
"""Seconds after which the JVM has reported what its collector has dropped."""
_TRUSTED = 3
"""How often to look for a vertex that turns out to be alive before backing off: a busy machine is late."""


@dataclass(frozen=True)
class _Followed:
    """A frame that a recovery point has returned.

    :ivar python: weak reference to the Python frame
    :ivar java: weak reference to the name in its plan
    """

    python: weakref.ref[Any]
    java: Any

    def dropped(self) -> bool:
        return bool(self.java.isEnqueued())


class LivePlans:
    """The frames of one Spark application that read stored vertices. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._followed: dict[str, list[_Followed]] = defaultdict(list)
        self._queue: Any = None
        self._in_vain: dict[str, int] = defaultdict(int)
        self._asked: dict[str, int] = defaultdict(int)
        self._read_now: Counter[str] = Counter()
        self.seconds = 0.0
        """Time spent looking."""

    def follow(self, vertex: str, df: Any) -> None:
        """Follow *df*, a recovery point's frame with the vertex at the root of its plan."""
        jvm = jvm_of(df.sparkSession)
        with self._lock:
            if self._queue is None:
                self._queue = jvm.java.lang.ref.ReferenceQueue()
            name = analyzed(df).child().identifier()
            held = jvm.java.lang.ref.WeakReference(name, self._queue)
            self._followed[vertex].append(_Followed(weakref.ref(df), held))

    @contextmanager
    def read(self, vertices: Collection[str]) -> Iterator[None]:
        """Do not look for *vertices* while the block computes a frame that reads them."""
        with self._lock:
            self._read_now.update(vertices)
        try:
            yield
        finally:
            with self._lock:
                self._read_now.subtract(vertices)

    def dropped(self, vertex: str) -> bool:
        """Whether the script has had a vertex, and nothing is left that could read it."""
        with self._lock:
            left = [followed for followed in self._followed.get(vertex, ()) if not followed.dropped()]
            if vertex in self._followed and left:
                self._followed[vertex] = left
            return vertex in self._followed and not left

    def worth_looking(self, vertices: Iterable[str]) -> list[str]:
        """Return the vertices that Python seems to have dropped.

        After a few looks that found it alive, a vertex is skipped for a number of calls that doubles each time.
        """
        found = []
        with self._lock:
            for vertex in vertices:
                followed = () if self._read_now[vertex] > 0 else self._followed.get(vertex, ())
                if followed and all(each.python() is None for each in followed):
                    self._asked[vertex] += 1
                    if self._asked[vertex] >= 2 ** max(0, self._in_vain[vertex] - _TRUSTED):
                        found.append(vertex)
        return found

    def collect(self, spark: Any, vertices: Collection[str]) -> None:
        """Let both collectors find out what became of some vertices."""
        began = time.monotonic()
        gc.collect()  # py4j objects form cycles
        for _ in range(_ROUNDS):
            time.sleep(_PAUSE)
            jvm_of(spark).System.gc()
            time.sleep(_NOTICE)
            if all(map(self.dropped, vertices)):
                break
        for vertex in vertices:
            if not self.dropped(vertex):
                self._in_vain[vertex] += 1
                self._asked[vertex] = 0
        self.seconds += time.monotonic() - began

    def forget(self, vertex: str) -> None:
        """Forget a released vertex."""
        with self._lock:
            self._followed.pop(vertex, None)
