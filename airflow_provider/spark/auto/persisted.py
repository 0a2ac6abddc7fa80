"""What the script caches becomes a recovery point, and stays cached.

``cache()`` only marks a plan; the first action that reads it computes it. That is when it is stored, and from then on
actions read a frame over the stored partitions that is cached in its place, at the storage level that the script chose.
The script's own entry stays as it is, so ``is_cached``, ``storageLevel`` and the catalog tell what they always tell.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.cached import CachedRelation, entry_of
from airflow_provider.spark.wrapping import put_in_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


class Persisted:
    """The cached relations of one driver that were made recovery points."""

    def __init__(self) -> None:
        self._frames: dict[int, DataFrame | None] = {}

    def frame(self, relation: CachedRelation, store: Callable[[], DataFrame | None]) -> DataFrame | None:
        """Return the cached frame that stands for *relation*; ``None`` if the script's own entry is to be read.

        :param store: stores it and returns a frame that reads it, or ``None``; asked once for each entry
        """
        if relation.entry not in self._frames:
            frame = None if relation.loaded else store()
            self._frames[relation.entry] = frame.persist(relation.storage_level) if frame is not None else None
        return self._frames[relation.entry]

    def forget(self, entry: int | None) -> None:
        """The script has given an entry up: free what is cached in its place."""
        frame = self._frames.pop(entry, None) if entry is not None else None
        if frame is not None:
            frame.unpersist()

    def wrap(self, stack: ExitStack, frame_class: Any) -> None:
        """See the script give entries up, until *stack* is closed."""
        original = frame_class.unpersist
        persisted = self

        @functools.wraps(original)
        def unpersist(self: Any, *args: Any, **kwargs: Any) -> Any:
            entry = entry_of(self) if persisted._frames else None
            result = original(self, *args, **kwargs)
            persisted.forget(entry)
            return result

        stack.callback(put_in_place(frame_class, "unpersist", unpersist))
