"""Blocking work beside an event loop: few threads, and few looks a second, however many triggers there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from asgiref.sync import sync_to_async

T = TypeVar("T")

_POOL = ThreadPoolExecutor(8, thread_name_prefix="spark-recovery")


async def in_thread(call: Callable[[], T]) -> T:
    """Call in a thread of our own pool, from where Airflow's connections can be asked for, too.

    Whoever waits can be cancelled at any time, and hears why; the call itself then ends by itself.
    """
    # Without the shield, sync_to_async would swallow a cancellation, or its message that says whether a user meant it.
    return await asyncio.shield(asyncio.ensure_future(sync_to_async(call, thread_sensitive=False, executor=_POOL)()))


class Pace:
    """Spreads what many do at once over time.

    :param per_second: most turns a second
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
