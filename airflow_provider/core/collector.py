"""Python's cyclic garbage collector, and how it is kept from looking again and again at what only grows."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the collector off while a large state is built in which nothing is cyclic: half of the time was its own.

    Memory is freed as ever, by reference counts. Within another one, or where the collector is off, does nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
