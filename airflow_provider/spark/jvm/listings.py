"""The file listings that the script's frames hold, whose files may be removed before the frames are read.

A frame keeps the listing from when it was made. The JVM's garbage collector drops it with the last frame.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import Any

from airflow_provider.core.causes import one_line
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.queries import analyzed, is_classic
from airflow_provider.spark.jvm.reflection import field_of, private_field
from airflow_provider.spark.jvm.scala import items

log = logging.getLogger(__name__)


class Listings:
    """The listings of noted frames. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: list[Any] = []

    def note(self, df: Any) -> None:
        """Remember, weakly, what *df* reads."""
        if not is_classic(df):
            return
        try:
            held = jvm_of(df.sparkSession).java.lang.ref.WeakReference
            found = [held(index) for leaf in items(analyzed(df).collectLeaves()) if (index := _index_of(leaf))]
        except Exception as error:  # noqa: BLE001 - the frame itself says what is wrong with it
            log.debug("What a frame has listed is not known: %s", one_line(error))
            return
        with self._lock:
            self._indexes += found

    def forget(self, spark: Any, paths: Collection[str]) -> None:
        """Make noted frames read what they have listed, except for the removed files."""
        with self._lock:
            alive = [index for held in self._indexes if (index := held.get()) is not None]
        try:
            for index in alive:
                _forget(jvm_of(spark), spark.sparkContext._gateway, index, paths)
        except Exception as error:  # noqa: BLE001 - the frame fails when it is read, and a retry reads it anew
            log.info("Cannot drop removed files from a DataFrame's file listing: %s", one_line(error))


def _index_of(leaf: Any) -> Any:
    """Return the listing of a plan's leaf; ``None`` if it has none, or lists files when it is read."""
    if leaf.getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = leaf.relation()
    index = relation.location() if relation.getClass().getSimpleName() == "HadoopFsRelation" else None
    return index if index is not None and index.getClass().getSimpleName() == "InMemoryFileIndex" else None


def _forget(jvm: Any, gateway: Any, index: Any, paths: Collection[str]) -> None:
    hadoop = jvm.org.apache.hadoop.fs
    files, by_folder = private_field(index, "cachedLeafFiles"), field_of(index, "cachedLeafDirToChildrenFiles")
    folders = dict[str, Any]()
    for path in map(hadoop.Path, paths):
        if files.contains(path):
            files.remove(path)
            folders[path.getParent().toString()] = path.getParent()
    for folder in folders.values():
        there = by_folder.get(index)
        left = [file for file in there.apply(folder) if files.contains(file.getPath())]
        kept = gateway.new_array(hadoop.FileStatus, len(left))
        for place, file in enumerate(left):
            kept[place] = file
        by_folder.set(index, there.updated(folder, kept))
