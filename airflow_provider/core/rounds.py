"""Work that one thread does in rounds, whenever another one asks for it, or a while has passed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Rounds:
    """Who asks may wait for the round that begins after that. Threads share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self._asked = 0
        self._done = 0

    @contextmanager
    def at_work(
        self, name: str, work: Callable[[], float | None], pause: float, patience: float | None = None
    ) -> Iterator[None]:
        """Let a thread work as long as the block runs; whoever waits when it ends goes on.

        :param work: a round; returns after how many seconds the next one begins if nobody asks, ``None`` if none does
        :param pause: the same for the first round
        :param patience: seconds that the block's end waits for a round under way; ``None`` for as long as that takes
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
        """Let a round begin soon; return its number."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()
            return self._asked

    def wait(self, number: int, seconds: float) -> None:
        """Return when a round is done, when nobody works, or after so many seconds."""
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
        """Wait until somebody asks, or so many seconds have passed; ``None`` if it is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open or self._asked > self._done, seconds)
            return self._asked if self._open else None

    def _close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()
