"""Work that one thread does in rounds, whenever another one asks for it, or a while has passed."""

from __future__ import annotations

import threading


class Rounds:
    """Who asks may wait for the round that begins after that. Threads share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self._asked = 0
        self._done = 0

    def open(self) -> None:
        """Somebody works from now on."""
        with self._changed:
            self._open = True

    def close(self) -> None:
        """Nobody works any more; whoever waits goes on."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

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

    def begin(self, seconds: float) -> int | None:
        """The one who works waits until somebody asks, or so many seconds have passed; ``None`` if it is to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open or self._asked > self._done, seconds)
            return self._asked if self._open else None

    def end(self, number: int) -> None:
        """A round that began with *number* is done."""
        with self._changed:
            self._done = number
            self._changed.notify_all()
