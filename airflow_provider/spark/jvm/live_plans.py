"""Whether the script can still read a vertex, as the garbage collectors of Python and of the JVM know it.

Each frame that a recovery point returns has an object of its own in its plan: the name of the alias by which the plan
shows what it reads. Whatever is made of the frame holds the same object in its own plan: other frames, temporary views,
what is cached. When the JVM has dropped it, no plan is left that could read those partitions, and none can be made.

Source: Spark's ``ContextCleaner``, which knows by weak references which shuffles and broadcasts nothing can use.
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
"""Seconds after which py4j has told the JVM, in a thread of its own, what Python has dropped."""
_NOTICE = 0.02
"""Seconds after which the JVM has said what its collector has dropped."""
_TRUSTED = 3
"""So often a vertex is looked for that is still there, before it is left for a while: a busy machine is late."""


@dataclass(frozen=True)
class _Followed:
    """A frame that a recovery point has returned.

    :ivar python: the frame as Python holds it, weakly
    :ivar java: the name in its plan, weakly
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
        """That looking has taken."""

    def follow(self, vertex: str, df: Any) -> None:
        """From now on *df* reads a vertex: the frame of a recovery point, which stands at the root of its plan."""
        jvm = jvm_of(df.sparkSession)
        with self._lock:
            if self._queue is None:
                self._queue = jvm.java.lang.ref.ReferenceQueue()
            name = analyzed(df).child().identifier()
            held = jvm.java.lang.ref.WeakReference(name, self._queue)
            self._followed[vertex].append(_Followed(weakref.ref(df), held))

    @contextmanager
    def read(self, vertices: Collection[str]) -> Iterator[None]:
        """A frame that reads *vertices* is computed inside, so that it is not looked for."""
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
        """Return those that Python has dropped as far as it knows them.

        One that was found still there a few times is left for a while: each time for twice as many questions.
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
        gc.collect()  # objects of py4j hold themselves
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
        """A vertex is released."""
        with self._lock:
            self._followed.pop(vertex, None)
