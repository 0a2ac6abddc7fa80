"""What Hadoop's file committers have not brought to its place yet, and how it is removed.

``FileOutputCommitter`` works in ``<target>/_temporary/<application attempt>``, where the number of the attempt is a
setting of Hadoop's that Spark leaves at 0. So tasks that a killed driver had committed lie where the next driver's
commit takes them for its own, unless each driver has a number of its own. A dynamic overwrite works in the same way
below ``<target>/.spark-staging-<write>``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from airflow_provider.core.committed_output import write_of

APPLICATION_ATTEMPT = "mapreduce.job.application.attempt.id"
_PENDING = "_temporary"
_STAGING = ".spark-staging-"
_MARKERS = frozenset({"_SUCCESS"})


def set_application_attempt(spark: Any, number: int) -> None:
    """Let this application's file writes work in a folder of their own.

    :param number: positive, below 2³¹
    """
    spark._jsc.hadoopConfiguration().set(APPLICATION_ATTEMPT, str(number))


class PendingOutput:
    """One application attempt's pending output in one folder.

    :param location: the folder that is written to; it need not exist
    """

    def __init__(self, spark: Any, location: str, number: int) -> None:
        self._path = spark._jvm.org.apache.hadoop.fs.Path
        self._bytes = spark._jvm.org.apache.commons.io.IOUtils
        self._target = self._path(location)
        self._system = self._target.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._number = str(number)
        self._local = Path(f"/{location.removeprefix('file:').lstrip('/')}") if location.startswith("file:") else None

    def exists(self) -> bool:
        """Whether the target is there."""
        return bool(self._system.exists(self._target))

    def begun(self) -> bool:
        """Whether this application attempt has begun to write, and has not cleaned up."""
        return bool(self._system.exists(self._pending(self._target)))

    def writes(self) -> set[str]:
        """Return the names of the writes whose files are pending."""
        return {write for folder in self._folders() for path in self._files(folder) if (write := write_of(path))}

    def a_write(self, *, staged: bool = True) -> set[str]:
        """Return the name of the first write that is found, as :meth:`writes` does; cheap, and may miss some.

        :param staged: also of a dynamic overwrite, for which all of the target has to be listed
        """
        if self._local is not None:
            paths = self._local_files(self._local, staged=staged)
        else:
            paths = (path for folder in self._folders(staged=staged) for path in self._files(folder))
        return set(islice((write for path in paths if (write := write_of(path))), 1))

    def _local_files(self, target: Path, *, staged: bool) -> Iterator[str]:
        """The paths of files in :meth:`_folders`, of local files, without the JVM: a look costs next to nothing."""
        for parent in (target, *(target.glob(f"{_STAGING}*") if staged else ())):
            for file in (parent / _PENDING / self._number).rglob("part-*"):
                yield str(file)

    def _folders(self, *, staged: bool = True) -> Iterator[Any]:
        """Pending tasks' folders that are there."""
        for parent in (self._target, *(self._staging() if staged else ())):
            folder = self._pending(parent)
            if self._system.exists(folder):
                yield folder

    def _pending(self, parent: Any) -> Any:
        """Where this application attempt's tasks work below a folder."""
        return self._path(self._path(parent, _PENDING), self._number)

    def _files(self, folder: Any) -> Iterator[str]:
        """The paths of all files below a folder, one after another."""
        files = self._system.listFiles(folder, True)
        while files.hasNext():
            yield str(files.next().getPath().toString())

    def _staging(self) -> list[Any]:
        if not self._system.exists(self._target):
            return []
        paths = [status.getPath() for status in self._system.listStatus(self._target) if status.isDirectory()]
        return [path for path in paths if str(path.getName()).startswith(_STAGING)]

    def remove(self, writes: Iterable[str]) -> bool:
        """Remove what is pending of this application attempt, and of *writes*; whether there was anything."""
        own = {f"{_STAGING}{write}" for write in writes}
        removed = False
        for staging in self._staging():
            if str(staging.getName()) in own or self._system.exists(self._pending(staging)):
                removed |= bool(self._system.delete(staging, True))
        removed |= bool(self._system.delete(self._pending(self._target), True))
        self._remove_empty(self._path(self._target, _PENDING))
        return removed

    def remove_files(self, paths: Iterable[str]) -> int:
        """Remove files; returns how many were there."""
        return sum(bool(self._system.delete(self._path(path), False)) for path in paths)

    def remove_writes(self, writes: Collection[str], *, whole: bool = False) -> None:
        """Remove the files of committed writes.

        :param whole: the target, too, if it then holds nothing else
        """
        if not self.exists():
            return
        if writes:
            self.remove_files([path for path in self._files(self._target) if write_of(path) in writes])
        if whole:
            self.remove_target()

    def same_bytes(self, one: str, other: str) -> bool:
        """Whether two files hold the same bytes."""
        streams = [self._system.open(self._path(path)) for path in (one, other)]
        try:
            return bool(self._bytes.contentEquals(*streams))
        finally:
            for stream in streams:
                stream.close()

    def remove_target(self) -> bool:
        """Remove the target if it holds nothing but empty folders and Spark's mark of success; whether it did."""
        if not self.exists():
            return False
        folders = self._only_folders(self._target)
        if folders is None:
            return False
        for marker in _MARKERS:
            self._system.delete(self._path(self._target, marker), False)
        return all(self._remove_empty(folder) for folder in reversed(folders))

    def _only_folders(self, folder: Any) -> list[Any] | None:
        """Return *folder* and all below it, each before its own; ``None`` if there is a file."""
        found = [folder]
        for status in self._system.listStatus(folder):
            if status.isDirectory():
                below = self._only_folders(status.getPath())
                if below is None:
                    return None
                found += below
            elif folder is not self._target or str(status.getPath().getName()) not in _MARKERS:
                return None
        return found

    def _remove_empty(self, folder: Any) -> bool:
        """Remove a folder unless there is something in it; another driver may write there at the same time."""
        if not self._system.exists(folder) or len(self._system.listStatus(folder)):
            return False
        return bool(self._system.delete(folder, False))
