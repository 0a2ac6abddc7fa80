"""Run a thread's work in rounds, on request or after a pause."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Rounds:
    """Repeated work; a caller can request a round and wait for it. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self._asked = 0
        self._done = 0

    @contextmanager
    def at_work(
        self, name: str, work: Callable[[], float | None], pause: float, patience: float | None = None
    ) -> Iterator[None]:
        """Run the thread while the block runs; at its end, waiting callers continue.

        :param work: runs one round; returns the pause in seconds before the next unrequested round, ``None`` for no
            more rounds
        :param pause: the pause before the first round
        :param patience: seconds that the block's end waits for a running round; ``None`` for no limit
        """
        thread = threading.Thread(target=self._run, args=(work, pause), name=name, daemon=True)
        with self._changed:
            self._open = True
        thread.start()
        try:
            yield
        finally:
            self._close()
            thread.join(patience)

    def ask(self) -> int:
        """Request a round; return its number."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()
            return self._asked

    def wait(self, number: int, seconds: float) -> None:
        """Wait until a round is done, the thread has ended, or *seconds* have passed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open or self._done >= number, seconds)

    def _run(self, work: Callable[[], float | None], first_pause: float) -> None:
        pause: float | None = first_pause
        try:
            while pause is not None and (number := self._begin(pause)) is not None:
                pause = work()
                with self._changed:
                    self._done = number
                    self._changed.notify_all()
        finally:
            self._close()

    def _begin(self, seconds: float) -> int | None:
        """Wait for a request or for *seconds*; return the round's number, ``None`` if the work is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open or self._asked > self._done, seconds)
            return self._asked if self._open else None

    def _close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()
