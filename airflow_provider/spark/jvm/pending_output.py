"""The pending output of Hadoop's file committers, not yet moved into place, and how to remove it.

``FileOutputCommitter`` works in ``<target>/_temporary/<application attempt>``, where the attempt's number is a Hadoop
setting that Spark leaves at 0. So the next driver's commit would include tasks that a killed driver has committed,
unless each driver has a number of its own. A dynamic overwrite works the same way below
``<target>/.spark-staging-<write>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from airflow_provider.core.committed_output import write_of
from airflow_provider.spark.jvm.names import jvm_of

APPLICATION_ATTEMPT = "mapreduce.job.application.attempt.id"
_PENDING = "_temporary"
_STAGING = ".spark-staging-"
_MARKER = "_SUCCESS"


def set_application_attempt(spark: Any, number: int) -> None:
    """Make this application's file writes work in a folder of their own.

    :param number: positive, below 2³¹
    """
    spark._jsc.hadoopConfiguration().set(APPLICATION_ATTEMPT, str(number))


class PendingOutput:
    """One application attempt's pending output in one folder.

    :param location: the folder that is written to; it need not exist
    """

    def __init__(self, spark: Any, location: str, number: int) -> None:
        self._path = jvm_of(spark).org.apache.hadoop.fs.Path
        self._target = self._path(location)
        self._system = self._target.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._number = str(number)

    def exists(self) -> bool:
        """Whether the target exists."""
        return bool(self._system.exists(self._target))

    def writes(self) -> set[str]:
        """Return the names of the writes whose files are pending."""
        return {write for folder in self._folders() for path in self._files(folder) if (write := write_of(path))}

    def _folders(self) -> Iterator[Any]:
        """The existing folders of pending tasks."""
        for parent in (self._target, *self._staging()):
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
        """Remove this application attempt's pending output, and that of *writes*; return whether there was any."""
        own = {f"{_STAGING}{write}" for write in writes}
        removed = False
        for staging in self._staging():
            if str(staging.getName()) in own or self._system.exists(self._pending(staging)):
                removed |= bool(self._system.delete(staging, True))
        removed |= bool(self._system.delete(self._pending(self._target), True))
        self._remove_empty(self._path(self._target, _PENDING))
        return removed

    def success_at(self) -> int:
        """Return when a job last committed in the target, as its marker says; milliseconds since the Unix epoch on the
        file system's clock, 0 if nothing says so.
        """
        marker = self._path(self._target, _MARKER)
        return int(self._system.getFileStatus(marker).getModificationTime()) if self._system.exists(marker) else 0

    def remove_files(self, paths: Iterable[str]) -> int:
        """Remove files; return how many there were.

        :raises OSError: the file system has left one
        """
        removed = 0
        for path in map(self._path, paths):
            if self._system.delete(path, False):
                removed += 1
            elif self._system.exists(path):
                raise OSError(f"{path.toString()} cannot be removed")
        return removed

    def remove_whole(self) -> None:
        """Remove the target with all that is in it."""
        self._system.delete(self._target, True)

    def remove_target(self) -> bool:
        """Remove the target if it holds only empty folders and Spark's success marker; return whether it did."""
        if not self.exists():
            return False
        folders = self._only_folders(self._target)
        if folders is None:
            return False
        self._system.delete(self._path(self._target, _MARKER), False)
        return all(self._remove_empty(folder) for folder in reversed(folders))

    def _only_folders(self, folder: Any) -> list[Any] | None:
        """Return *folder* and all folders below it, parents first; ``None`` if there is a file."""
        found = [folder]
        for status in self._system.listStatus(folder):
            if status.isDirectory():
                below = self._only_folders(status.getPath())
                if below is None:
                    return None
                found += below
            elif folder is not self._target or str(status.getPath().getName()) != _MARKER:
                return None
        return found

    def _remove_empty(self, folder: Any) -> bool:
        """Remove a folder unless something is in it; another driver may write there at the same time."""
        if not self._system.exists(folder) or len(self._system.listStatus(folder)):
            return False
        return bool(self._system.delete(folder, False))
