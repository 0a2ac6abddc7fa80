"""An event store that is opened anew from time to time: a trigger may live for days, credentials should not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from airflow_provider.storage.object_store import ObjectStore

_LIFE = 600.0
"""Seconds after which the connection is asked for its credentials again."""


class RenewedStore:
    """Passes on to an :class:`ObjectStore` that is opened when it is first needed, and again when it is old.

    :param open_store: asks the connection; whatever it raises, the next use opens again
    """

    def __init__(self, open_store: Callable[[], ObjectStore], clock: Callable[[], float] = time.monotonic) -> None:
        self._open = open_store
        self._clock = clock
        self._store: ObjectStore | None = None
        self._opened_at = 0.0
        self.worked = False
        """Whether it could be opened at least once."""

    def forget(self) -> None:
        """Open anew at the next use."""
        self._store = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # no operation of a store: Python itself asks for such names
            raise AttributeError(name)
        store, now = self._store, self._clock()
        if store is None or now - self._opened_at >= _LIFE:
            self._store = None
            self._store = store = self._open()
            self._opened_at, self.worked = now, True
        return getattr(store, name)
