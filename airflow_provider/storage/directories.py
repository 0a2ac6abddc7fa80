"""Directories that several processes fill and empty at once, as the store of files needs them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from airflow_provider.storage.object_store import ObjectInfo

T = TypeVar("T")

_CHUNK = 8 * 1024**2
_TRIES = 100
"""How often a directory that others keep removing, because it was empty, is made again."""


def in_directory(path: Path, action: Callable[[], T], *, durable: bool = False, mode: int = 0o777) -> T:
    """Make the directory of *path*, then act; again if somebody removes the directory in between.

    :param action: creates *path*; raises ``FileNotFoundError`` if its directory is not there
    :param durable: flush the new names to the disk
    :param mode: of directories that are made, before the umask
    """
    for last in (*[False] * (_TRIES - 1), True):
        new = [directory for directory in path.parents if not directory.exists()] if durable else []
        try:
            _make_directory(path.parent, mode)
            result = action()
        except FileNotFoundError:
            if last:
                raise
            continue
        if durable:
            for directory in (path, *new):
                _sync_directory(directory.parent)
        return result
    raise AssertionError("the last try returns or raises")


def prune(directory: Path, root: Path) -> None:
    """Remove *directory* and its parents below *root* as long as they are empty."""
    while root in directory.parents:
        try:
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent


def walk(directory: Path, parent: str, prefix: str) -> Iterator[ObjectInfo]:
    """Yield files in the order of their whole keys, which a sort of each directory by name alone would not give.

    Symbolic links are neither followed nor listed: what they lead to is not ours to read or delete.
    """
    try:
        with os.scandir(directory) as entries:
            own = [entry for entry in entries if not entry.is_symlink()]
        found = sorted((entry.name + "/" if entry.is_dir() else entry.name, entry) for entry in own)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in found:
        key = parent + name
        if name.endswith("/"):
            if key.startswith(prefix) or prefix.startswith(key):
                yield from walk(directory / entry.name, key, prefix)
        elif key.startswith(prefix):
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            yield ObjectInfo(key, status.st_size, status.st_mtime)


def _make_directory(directory: Path, mode: int) -> None:
    """Make it and its parents; :raises FileNotFoundError: somebody removed it meanwhile."""
    try:
        missing = [directory, *directory.parents]
        for each in reversed(missing[: next((n for n, path in enumerate(missing) if path.is_dir()), len(missing))]):
            each.mkdir(mode, exist_ok=True)
        if not directory.is_dir():
            directory.mkdir(mode)
    except FileExistsError as error:
        if not directory.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory)) from error
        if not directory.is_dir():
            raise


def copy_exclusively(temporary: Path, target: Path) -> None:
    """Create-only without hard links; if it fails half-way nothing is left under the name."""
    with target.open("xb") as file:
        try:
            with temporary.open("rb") as source:
                shutil.copyfileobj(source, file, _CHUNK)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                target.unlink()
            raise


def _sync_directory(directory: Path) -> None:
    """Make a new name durable; file systems that cannot flush a directory need it no more than we can give it."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
