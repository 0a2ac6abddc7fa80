"""Find the tasks of a file write that survived their driver, and whether a retry may keep their files. Pure.

Hadoop's committer gives each committed task its own folder, which it renames into place in one step:
``task_<job>_m_<partition>``. Spark also names the files in it after the partition and the write. A folder counts if all
of these agree; anything else beside it belongs to others, or is incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider.core.committed_output import WRITE_NAME

_FOLDER = re.compile(r"task_\d+_\d+_m_(\d+)")
_FILE = re.compile(rf"part-(\d+)-({WRITE_NAME})[-.][^/]*")

_KEPT = ".spark-recovery-"
_KEPT_FOLDER = re.compile(re.escape(_KEPT) + WRITE_NAME)

Ranges = tuple[tuple[tuple[int, int], ...], ...]
"""Of each shuffle that the tasks read, the reducers ``[start, end)`` of each task."""


@dataclass(frozen=True)
class Cut:
    """How a write's rows are divided among tasks.

    :ivar layout: equal only if each task writes the same rows; empty text if single tasks must not be kept
    :ivar ranges: the ranges by which a retry divides its own plan in the same way
    :ivar why: why there is no layout
    """

    layout: str = ""
    ranges: Ranges = ()
    why: str = ""

    @classmethod
    def from_state(cls, state: object) -> Self:
        """Read what :meth:`to_state` returned; anything else gives a cut that keeps no task."""
        if not isinstance(state, Mapping):
            return cls()
        try:
            ranges = tuple(tuple((int(start), int(end)) for start, end in one) for one in state["ranges"])
            return cls(str(state["layout"]), ranges, str(state["why"]))
        except (KeyError, TypeError, ValueError):
            return cls()

    def to_state(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"layout": self.layout, "ranges": [[list(pair) for pair in one] for one in self.ranges], "why": self.why}


@dataclass(frozen=True)
class TaskFolder:
    """The folder of a committed task.

    :ivar path: path of the folder
    :ivar whole: whether nothing in it was added or removed since its last file was written
    :ivar files: names of all files in it, at any depth
    """

    path: str
    whole: bool
    files: tuple[str, ...]


def committed_tasks(folders: Iterable[TaskFolder], write: str) -> dict[int, str]:
    """Return the task folders of a write by partition; one per partition, even if several attempts left one.

    :param write: Spark's name of the write
    """
    found: dict[int, str] = {}
    for folder in sorted(folders, key=lambda each: each.path):
        partition = partition_of(folder.path)
        files = [_FILE.fullmatch(file) for file in folder.files]
        if partition is None or not folder.whole or not files:
            continue
        if all(file and int(file[1]) == partition and file[2] == write for file in files):
            found[partition] = folder.path
    return found


def partition_of(folder: str) -> int | None:
    """Return the partition in a task folder's name; ``None`` if it is not a task folder."""
    name = _FOLDER.fullmatch(folder.rpartition("/")[2])
    return int(name[1]) if name is not None else None


def kept_beside(location: str, write: str) -> str:
    """Return the folder that keeps what tasks of a killed write have committed, until a retry commits it.

    :param location: the folder to which the write goes
    :param write: Spark's name of it, a UUID
    """
    return f"{location.rstrip('/').rpartition('/')[0]}/{_KEPT}{write}"


def is_kept_folder(path: str) -> bool:
    """Whether a path is one of :func:`kept_beside`, by its name."""
    return _KEPT_FOLDER.fullmatch(path.rpartition("/")[2]) is not None
