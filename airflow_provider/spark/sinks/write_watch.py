"""Learn Spark's name of a write while it runs, so that what it leaves when it is killed can be told from all else.

Spark draws a UUID for each write and names its files after it; nothing else of the driver knows it. The first file that
a task begins shows it, before any task has committed. A thread looks for that file, and has the name remembered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
_SHARE = 0.02
_LOOKING = 20
"""A look that takes long, in a store of objects, is followed by a pause so many times as long."""


@contextmanager
def watched_write(look: Callable[[], set[str]], found: Callable[[set[str]], object]) -> Iterator[None]:
    """Call *found* once, as soon as *look* returns something, while the body runs; never after that.

    The pauses grow with the time that has passed, since a write whose tasks begin late has long tasks, and with what
    a look takes.

    :param look: returns the names that can be seen; may fail
    :param found: remembers them; may fail
    """
    ended, calling = threading.Event(), threading.Lock()

    def watch() -> None:
        begun, took = time.monotonic(), 0.0
        while not ended.wait(pause_after(time.monotonic() - begun, took)):
            looked = time.monotonic()
            with suppress(Exception):  # files come and go under the look; without a name a retry is more careful
                names = look()
                if names:
                    with calling:
                        if not ended.is_set():
                            found(names)
                    return
            took = time.monotonic() - looked

    thread = threading.Thread(target=watch, name="watch-write", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        with calling:  # what is remembered of the end comes after what is remembered of the course
            pass


def pause_after(passed: float, took: float) -> float:
    """Return the seconds until the next look.

    :param passed: seconds since the write has begun
    :param took: seconds of the last look
    """
    return max(_LOOKING * took, min(_LONGEST_PAUSE, max(_FIRST_PAUSE, _SHARE * passed)))
