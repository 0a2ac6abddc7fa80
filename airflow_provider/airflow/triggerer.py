"""Let hundreds of triggers run for days in one triggerer: few threads, few looks a second, fresh credentials."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from airflow_provider.storage.object_store import ObjectStore

T = TypeVar("T")

_POOL = ThreadPoolExecutor(8, thread_name_prefix="spark-recovery")
_AT_WORK = set[asyncio.Task[Any]]()
"""What nobody may wait for any more: the event loop holds it weakly."""
_LIFE = 600.0
"""Seconds after which the connection is asked for its credentials again."""


async def in_thread(call: Callable[[], T]) -> T:
    """Call in a thread of our own pool, which can also look up Airflow's connections.

    The waiting coroutine can be cancelled at any time and sees the cancellation; the call itself runs to its end.
    """
    # Without the shield, sync_to_async would swallow a cancellation, or its message that tells whether a user meant it.
    return await to_its_end(sync_to_async(call, thread_sensitive=False, executor=_POOL)())


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for *work*, which continues if the waiting is cancelled. A triggerer cancels a trigger again in each of its
    rounds, once a second, until the trigger has ended.
    """
    task = asyncio.create_task(work)
    _AT_WORK.add(task)
    task.add_done_callback(_AT_WORK.discard)
    return await asyncio.shield(task)


class Pace:
    """Spreads the looks of many triggers over time.

    :param per_second: maximum turns per second
    """

    def __init__(self, per_second: float) -> None:
        self._gap = 1.0 / per_second
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for one's turn."""
        now = asyncio.get_running_loop().time()
        slot = max(now, self._next)
        self._next = slot + self._gap
        await asyncio.sleep(slot - now)


class RenewedStore:
    """Delegates to an :class:`ObjectStore` that it opens on first use, and again once that has become old.

    :param open_store: opens the store; if it raises, the next use calls it again
    """

    def __init__(self, open_store: Callable[[], ObjectStore], clock: Callable[[], float] = time.monotonic) -> None:
        self._open = open_store
        self._clock = clock
        self._store: ObjectStore | None = None
        self._opened_at = 0.0
        self.worked = False
        """Whether it could be opened at least once."""

    def forget(self) -> None:
        """Reopen the store at the next use."""
        self._store = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not an operation of a store: Python itself looks up such names
            raise AttributeError(name)
        store, now = self._store, self._clock()
        if store is None or now - self._opened_at >= _LIFE:
            self._store = None
            self._store = store = self._open()
            self._opened_at, self.worked = now, True
        return getattr(store, name)
