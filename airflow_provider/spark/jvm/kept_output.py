"""What tasks of killed attempts have committed of one write, kept beside its target until a retry commits it.

Hadoop's ``FileOutputCommitter`` (algorithm 1) leaves it in ``<target>/_temporary/<application attempt>/task_*``, and
can take over what an earlier application attempt has left (``recoverTask``), which Spark never asks it to. The target
itself has to look as before the write: a script may ask whether it is there, Spark refuses to write where something
is, and an overwrite deletes all of it. So the attempt's folder is moved out of it, whole and in one step, to a hidden
folder named after the write: ``<parent of the target>/.spark-recovery-<Spark's name>/<application attempt>``.

A folder whose job had begun to commit has lost some of its files to the target, and is never kept: before a job
commits, a folder inside of it says so.
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
    """Whether a folder's file system moves what is pending there in one step, and has a place beside it."""
    path = jvm_of(spark).org.apache.hadoop.fs.Path(location)
    system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return path.getParent() is not None and str(system.getUri().getScheme()) in _RENAMING


class KeptOutput:
    """What is kept of one write.

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
        """Move here what an application attempt has pending in the target, if there is anything.

        :param went_on: whether that attempt may have left out tasks itself. For its first one Spark's
            ``FileFormatWriter`` has written a file of no rows then, as if the task had computed it. It goes.
        :raises Exception: it cannot be moved in one step, or what must not be kept cannot be removed; nothing that is
            here may be kept then
        """
        kept = self._path(self._folder, str(number))
        if not self._system.exists(kept):  # else a task that nobody waits for has made the other one anew
            self._tasks.move(self._system, self._pending(number), kept)
        if went_on:
            self._remove(self._folder, number, {0})

    def tasks(self) -> dict[int, str]:
        """Return the folders of the tasks that are kept, by partition; none if a job had begun to commit them."""
        commits, found = self._look(self._folder)
        return {} if commits else committed_tasks((TaskFolder(*task) for task in found), self._write)

    def _look(self, folder: Any) -> tuple[bool, list[tuple[str, bool, tuple[str, ...]]]]:
        """Return whether a job had begun to commit what is in the folders of application attempts, and the fields of
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
        """Say in an application attempt's pending folder that its job begins to commit."""
        folder = self._pending(number)
        if self._system.exists(folder):
            self._system.mkdirs(self._path(self._path(folder, _PENDING), _COMMITS))

    def give(self, tasks: Mapping[int, str], number: int, given: Callable[[], object]) -> None:
        """Move tasks' folders to where Hadoop commits them with those of an application attempt.

        That attempt's own tasks had nothing to write for these partitions; for the first one Spark writes an empty
        file all the same, which goes.

        :param given: called after each of them
        :raises Exception: one is not there any more, or cannot be moved, or an empty one cannot be removed
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

        :param folder: which has the folders of application attempts
        :raises OSError: it is still there
        """
        for path, _, _ in self._look(folder)[1]:
            if path.split("/")[-2] == str(number) and partition_of(path) in partitions:
                task = self._path(path)
                if not self._system.delete(task, True) and self._system.exists(task):
                    raise OSError(f"{path} cannot be removed, which has no rows")

    def discard(self) -> None:
        """Remove all that is kept."""
        _discard(self._system, self._path, self._folder)

    def _pending(self, number: int) -> Any:
        return self._path(self._path(self._target, _PENDING), str(number))


def discard_kept(location: str, write: str) -> None:
    """Remove all that is kept of a write, also when the script has stopped its session.

    :raises Exception: the file system does not answer, or there is no JVM
    """
    from pyspark import SparkContext

    jvm: Any = jvm_of(SparkContext)
    folder = _folder_of(jvm.org.apache.hadoop.fs.Path, location, write)
    _discard(folder.getFileSystem(jvm.org.apache.hadoop.conf.Configuration()), jvm.org.apache.hadoop.fs.Path, folder)


def _folder_of(path: Any, location: str, write: str) -> Any:
    return path(kept_beside(path(location).toString(), write))


def _discard(system: Any, path: Any, folder: Any) -> None:
    """Remove a folder in one step, as far as anybody can see who looks for it."""
    removed = path(f"{folder.toString()}{_REMOVED}")
    system.delete(removed, True)
    if system.exists(folder) and system.rename(folder, removed):
        system.delete(removed, True)
