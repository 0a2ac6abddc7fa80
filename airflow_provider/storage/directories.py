"""Directories for the file store that several processes can fill and empty at once.

Names are looked up one by one in directories that are held open, so a symbolic link on the way is an error, even one
planted meanwhile. Only the root may be a link.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self, TypeVar, cast

from airflow_provider.storage.object_store import ObjectInfo

T = TypeVar("T")

_CHUNK = 8 * 1024**2
_TRIES = 100
"""How often a directory that others keep removing, because it was empty, is made again."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_REPLACED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""What is said of a directory that was one when its name was read."""


class Folder:
    """The directories from a root down to one of its folders, held open until it is closed.

    :param names: names of the directories below *root*
    :param make: mode of new directories, before the umask; ``None`` to create none
    :raises FileNotFoundError: one of them does not exist, or was removed meanwhile
    :raises NotADirectoryError: one of them is a file
    :raises OSError: one of them is a symbolic link (``ELOOP``), or cannot be opened
    """

    def __init__(self, root: Path, names: Sequence[str], make: int | None = None) -> None:
        self._names = names
        self._open: list[int] = []
        self._made_in: list[int] = []
        try:
            if make is not None:
                _make_root(root, make)
            self._open.append(os.open(root, _DIRECTORY))
            for name in names:
                self._open.append(self._enter(name, make))
        except BaseException:
            self.close()
            raise

    def _enter(self, name: str, make: int | None) -> int:
        try:
            return open_directory(name, self.descriptor)
        except FileNotFoundError:
            if make is None:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, make, dir_fd=self.descriptor)
        self._made_in.append(self.descriptor)
        return open_directory(name, self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all directories."""
        while self._open:
            os.close(self._open.pop())

    @property
    def descriptor(self) -> int:
        """The last directory's file descriptor."""
        return self._open[-1]

    def create(self, name: str) -> BinaryIO:
        """Create and open a file; :raises FileExistsError: the name is taken."""
        return self._opened(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, "wb")

    def open(self, name: str) -> BinaryIO:
        """Open a file to read it; :raises OSError: it is a symbolic link (``ELOOP``), or cannot be read."""
        return self._opened(name, os.O_RDONLY | os.O_NOFOLLOW, "rb")

    def _opened(self, name: str, flags: int, mode: str) -> BinaryIO:
        # Python's own open() names the path in its errors, also for a directory, and closes what it cannot use.
        opener = partial(os.open, mode=0o666, dir_fd=self.descriptor)
        return cast("BinaryIO", open(name, mode, opener=lambda path, _: opener(path, flags | os.O_CLOEXEC)))

    def status(self, name: str) -> os.stat_result:
        """Return the status of *name*; :raises OSError: it is a symbolic link, or nothing is there."""
        found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise _is_a_link(name)
        return found

    def remove(self, name: str) -> None:
        """Remove a file, then the directories below the root that are empty.

        :raises OSError: the file does not exist, or cannot be removed
        """
        try:
            os.unlink(name, dir_fd=self.descriptor)
        finally:
            with suppress(OSError):
                for parent, emptied in zip(self._open[-2::-1], reversed(self._names), strict=True):
                    os.rmdir(emptied, dir_fd=parent)

    def flush(self) -> None:
        """Make new names in the folder durable, and those of directories created for it."""
        for descriptor in (self.descriptor, *self._made_in):
            # Some file systems cannot flush a directory; nothing else can be done there.
            with suppress(OSError):
                os.fsync(descriptor)


def in_folder(root: Path, names: Sequence[str], action: Callable[[Folder], T], mode: int) -> tuple[Folder, T]:
    """Create a folder, then act in it; repeat if it is removed in between. Return the open folder and the result.

    :param action: creates a file; raises ``FileNotFoundError`` if its directory does not exist
    :param mode: mode of new directories, before the umask
    """
    for last in (*[False] * (_TRIES - 1), True):
        try:
            folder = Folder(root, names, mode)
            try:
                return folder, action(folder)
            except BaseException:
                folder.close()
                raise
        except FileNotFoundError:
            if last:
                raise
    raise AssertionError("the last try returns or raises")


def open_directory(name: str, parent: int) -> int:
    """Open a directory in another one; :raises OSError: it is a symbolic link (``ELOOP``), or cannot be opened."""
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except NotADirectoryError:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise _is_a_link(name) from None
        raise


def walk(directory: int, parent: str, prefix: str) -> Iterator[ObjectInfo]:
    """Yield files in the order of their full keys, which differs from sorting each directory by name.

    Symbolic links are neither followed nor listed: their targets are not ours to read or delete.

    :param directory: an open directory
    :param parent: its key, with a trailing slash
    """
    with os.scandir(directory) as entries:
        own = [entry for entry in entries if not entry.is_symlink()]
    for name in sorted(entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in own):
        key = parent + name
        if name.endswith("/"):
            if key.startswith(prefix) or prefix.startswith(key):
                yield from _walk_below(name[:-1], directory, key, prefix)
        elif key.startswith(prefix):
            try:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield ObjectInfo(key, status.st_size, status.st_mtime)


def _walk_below(name: str, parent: int, key: str, prefix: str) -> Iterator[ObjectInfo]:
    try:
        directory = open_directory(name, parent)
    except OSError as error:
        if error.errno in _REPLACED:
            return
        raise
    try:
        yield from walk(directory, key, prefix)
    finally:
        os.close(directory)


def remove_empty(directory: int) -> None:
    """Remove the empty directories below an open one."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in names:
        with suppress(OSError):
            inner = open_directory(name, directory)
            try:
                remove_empty(inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=directory)


def copy_exclusively(source: BinaryIO, folder: Folder, name: str) -> None:
    """Create a file without hard links, failing if it exists; leave nothing under the name if it fails half-way."""
    with folder.create(name) as file:
        try:
            shutil.copyfileobj(source, file, _CHUNK)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder.descriptor)
            raise


def _make_root(root: Path, mode: int) -> None:
    """Create the root and its parents, durably; :raises FileNotFoundError: it was removed meanwhile."""
    if root.is_dir():
        return
    try:
        for directory in [path for path in (*reversed(root.parents), root) if not path.is_dir()]:
            directory.mkdir(mode, exist_ok=True)
            _sync_directory(directory.parent)
    except FileExistsError as error:
        if not root.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root)) from error
        if not root.is_dir():
            raise


def _sync_directory(directory: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(directory, _DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_a_link(name: str) -> OSError:
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
