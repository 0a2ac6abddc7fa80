"""Spark's local directories: where an executor's block manager puts a file, and scratch space on the same disks."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_provider.core.quantities import bytes_text

LOCAL_DIRS = "SPARK_LOCAL_DIRS"
"""Environment variable in which Spark gives its Python workers the block manager's directories."""


_SPARE = 2**30
"""Bytes to leave free on a local disk; on a small disk, a tenth of it."""


@dataclass(frozen=True)
class LocalDirs:
    """The local directories of an executor, with its block manager's rule for where a file goes.

    :ivar paths: the directories
    :ivar fanout: folders in each (``spark.diskStore.subDirectories``)
    """

    paths: tuple[str, ...]
    fanout: int = 64

    def file(self, name: str) -> Path:
        """Return the path of a block's file: the hash of its name chooses the folder."""
        folder = _java_hash(name) // len(self.paths) % self.fanout
        return Path(self.directory(name), f"{folder:02x}", name)

    def directory(self, name: str) -> Path:
        """Return the directory that holds a block's file."""
        return Path(self.paths[_java_hash(name) % len(self.paths)])


class NoRoom(OSError):
    """The local disk has no room for a file; the job itself is fine."""


@contextmanager
def scratch_folder(place: str | None = None) -> Iterator[Path]:
    """Make a folder that is removed when the block ends.

    :param place: where; by default the executor's local disk with the most room. On the driver, where Spark names no
        disk, the folder for temporary files (``TMPDIR``)

    :raises NoRoom: it cannot be made
    """
    try:
        folder = tempfile.TemporaryDirectory(
            prefix="spark-recovery-", dir=place or _roomiest(), ignore_cleanup_errors=True
        )
    except OSError as error:
        raise NoRoom(error.errno, f"no folder can be made for it: {error.strerror}", error.filename) from error
    with folder as name:
        yield Path(name)


def leave_room(folder: Path, size: int) -> None:
    """Make sure that *size* more bytes leave enough room for the job's own tasks on the disk of *folder*.

    :raises NoRoom: they would not
    """
    disk = shutil.disk_usage(folder)
    if disk.free - size < min(_SPARE, disk.total // 10):
        raise NoRoom(errno.ENOSPC, f"the local disk has {bytes_text(disk.free)} left, which tasks will need")


def _roomiest() -> str | None:
    places = [place for place in os.environ.get(LOCAL_DIRS, "").split(",") if place and os.access(place, os.W_OK)]
    return max(places, key=lambda place: shutil.disk_usage(place).free, default=None)


def _java_hash(text: str) -> int:
    """Return Java's hash code of an ASCII text, made non-negative as Spark's block manager does."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return abs(signed) if signed != -(2**31) else 0
