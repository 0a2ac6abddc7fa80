"""Keep the committed tasks of a write's killed attempts beside its target until a retry commits them.

Hadoop's ``FileOutputCommitter`` (algorithm 1) leaves them in ``<target>/_temporary/<application attempt>/task_*``, and
can take over those of an earlier application attempt (``recoverTask``), but Spark never asks it to. The target itself
must look as before the write: a script may check whether it exists, Spark refuses to write where something is, and an
overwrite deletes all of it. So the attempt's folder is moved, whole and in one step, to a hidden folder named after the
write: ``<parent of the target>/.spark-recovery-<Spark's name>/<application attempt>``.

A folder whose job had started to commit has lost some of its files to the target, and is never kept. Before a job
commits, it makes a folder inside that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from airflow_provider.core.task_output import TaskFolder, committed_tasks, kept_beside, partition_of
from airflow_provider.spark.jvm.compiled import compiled, fetched
from airflow_provider.spark.jvm.names import jvm_of

_REMOVED = "-removed"
_PENDING = "_temporary"
_COMMITS = "committing"
_RENAMING = frozenset({"file", "hdfs"})
"""File systems that rename a folder in one step, whatever happens."""


def can_keep(spark: Any, location: str) -> bool:
    """Whether a folder's file system moves its pending output in one step, and the folder has a place beside it."""
    path = jvm_of(spark).org.apache.hadoop.fs.Path(location)
    system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return path.getParent() is not None and str(system.getUri().getScheme()) in _RENAMING


class KeptOutput:
    """The kept tasks of one write.

    :param location: the folder that it writes to, see :func:`can_keep`
    :param write: Spark's name of it
    """

    def __init__(self, spark: Any, location: str, write: str) -> None:
        self._path = jvm_of(spark).org.apache.hadoop.fs.Path
        self._target = self._path(location)
        self._system = self._target.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._tasks = compiled(spark, "KeptTasks", str)
        self._write = write
        self._folder = _folder_of(self._path, location, write)

    def take(self, number: int, *, went_on: bool) -> None:
        """Move an application attempt's pending output from the target to here, if there is any.

        :param went_on: whether that attempt may have left out tasks itself. If so, Spark's ``FileFormatWriter`` has
            written an empty file for partition 0 as if its task had computed it; that file is removed.
        :raises Exception: it cannot be moved in one step, or what must not be kept cannot be removed; then nothing here
            may be kept
        """
        kept = self._path(self._folder, str(number))
        if not self._system.exists(kept):  # else an orphaned task has made the pending folder again
            self._tasks.move(self._system, self._pending(number), kept)
        if went_on:
            self._remove(self._folder, number, {0})

    def tasks(self) -> dict[int, str]:
        """Return the folders of the kept tasks, by partition; empty if a job had started to commit them."""
        commits, found = self._look(self._folder)
        return {} if commits else committed_tasks((TaskFolder(*task) for task in found), self._write)

    def _look(self, folder: Any) -> tuple[bool, list[tuple[str, bool, tuple[str, ...]]]]:
        """Return whether a job had started to commit what is in the folders of application attempts, and the fields of
        its tasks' folders.
        """
        words = iter(fetched(self._tasks.look(self._system, folder, _COMMITS))[0])
        commits, found = False, list[tuple[str, bool, list[str]]]()
        for word in words:
            if word == "task":
                found.append((next(words), next(words) == "whole", []))
            elif word == "file":
                found[-1][2].append(next(words))
            else:
                commits = bool(next(words))
        return commits, [(path, whole, tuple(files)) for path, whole, files in found]

    def mark_commit(self, number: int) -> None:
        """Mark an application attempt's pending folder: its job starts to commit."""
        folder = self._pending(number)
        if self._system.exists(folder):
            self._system.mkdirs(self._path(self._path(folder, _PENDING), _COMMITS))

    def give(self, tasks: Mapping[int, str], number: int, given: Callable[[], object]) -> None:
        """Move tasks' folders to where Hadoop commits them together with those of an application attempt.

        That attempt's own tasks had nothing to write for these partitions; but Spark writes an empty file for partition
        0 all the same, which is removed.

        :param given: called after each of them
        :raises Exception: one is gone or cannot be moved, or an empty one cannot be removed
        """
        folder = self._pending(number)
        self._remove(folder.getParent(), number, tasks)
        for task in tasks.values():
            kept = self._path(task)
            if not self._tasks.move(self._system, kept, self._path(folder, kept.getName())):
                raise FileNotFoundError(f"{task} is gone, which an earlier attempt has written")
            given()

    def _remove(self, folder: Any, number: int, partitions: Container[int]) -> None:
        """Remove what the tasks of some partitions have committed in an application attempt.

        :param folder: contains the folders of application attempts
        :raises OSError: it is still there
        """
        for path, _, _ in self._look(folder)[1]:
            if path.split("/")[-2] == str(number) and partition_of(path) in partitions:
                task = self._path(path)
                if not self._system.delete(task, True) and self._system.exists(task):
                    raise OSError(f"{path} cannot be removed, which has no rows")

    def discard(self) -> None:
        """Remove everything that is kept."""
        _discard(self._system, self._path, self._folder)

    def _pending(self, number: int) -> Any:
        return self._path(self._path(self._target, _PENDING), str(number))


def discard_kept(location: str, write: str) -> None:
    """Remove everything that is kept of a write, even if the script has stopped its session.

    :raises Exception: the file system does not answer, or there is no JVM
    """
    from pyspark import SparkContext

    jvm: Any = jvm_of(SparkContext)
    folder = _folder_of(jvm.org.apache.hadoop.fs.Path, location, write)
    _discard(folder.getFileSystem(jvm.org.apache.hadoop.conf.Configuration()), jvm.org.apache.hadoop.fs.Path, folder)


def _folder_of(path: Any, location: str, write: str) -> Any:
    return path(kept_beside(path(location).toString(), write))


def _discard(system: Any, path: Any, folder: Any) -> None:
    """Remove a folder in what looks like one step to anyone who lists it."""
    removed = path(f"{folder.toString()}{_REMOVED}")
    system.delete(removed, True)
    if system.exists(folder) and system.rename(folder, removed):
        system.delete(removed, True)
