"""Keep this user's private files on a machine: a folder is removed when no process has used it for a week.

A process that uses a folder holds a shared lock on it while it lives, and updates its time: the kernel releases the
lock however the process ends. A process that creates a folder sweeps some of the old ones: those that are older than a
week and that it can lock exclusively. No other user can write here, and no symbolic link is followed. Needs the
standard library only.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

KEPT = 7 * 24 * 3600.0
"""Seconds for which a folder is kept after its last use began."""
_PREFIX = "airflow-provider-spark-recovery-"
_OURS = re.compile(r"(?:dependencies-|task-|temporary-)?[0-9a-f]{24,32}")
_MARK = ".used"
"""File in a folder whose users hold it. One without is an earlier release's, whose users hold nothing."""
_MOST = 20
"""Folders that are removed at a time: what has gathered for months is no single task's work."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

_held: dict[Path, int] = {}
"""The folders that this process uses, for as long as it lives, and their descriptors."""


def private_folder() -> Path:
    """Return this user's own folder for code that other processes run for it; no other user can write to it."""
    folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        return _substitute(folder.parent)
    return folder


@cache
def _substitute(place: Path) -> Path:
    """Create a substitute folder for this process, because another user has created or opened the usual one."""
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))


def hold(folder: Path) -> Path:
    """Return *folder*, created if necessary; it is not swept while this process lives.

    :raises OSError: it cannot be created
    """
    while True:
        new = _make(folder)
        held = _held.get(folder)
        if held is not None and _is(folder, held):
            break
        if held is not None and _held.pop(folder, None) == held:
            os.close(held)  # a cleaner of temporary files has removed the folder
        with suppress(FileNotFoundError):  # swept since it was created
            held = _locked(folder)
            if _is(folder, held) and _held.setdefault(folder, held) == held:
                break
            os.close(held)
    (folder / _MARK).touch(mode=0o600)
    os.utime(held)
    if new:
        sweep(folder.parent)
        _sweep_substitutes()
    return folder


def hold_if_private(path: Path) -> None:
    """Hold the folder of a file if it is from :func:`private_folder`; else do nothing."""
    folder = path.absolute().parent
    if folder.parent.name.startswith(_PREFIX) and _OURS.fullmatch(folder.name):
        with suppress(OSError):
            hold(folder)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder that only this user can read, and remove it after the block; after a kill it is swept later."""
    folder = new_temporary_folder()
    try:
        yield folder
    finally:
        remove_held(folder)


def new_temporary_folder() -> Path:
    """Create a folder that only this user can read. Its last user removes it; after a kill it is swept later."""
    folder = hold(private_folder() / f"temporary-{uuid.uuid4().hex}")
    (folder / _MARK).unlink()
    return folder


def remove_held(folder: Path) -> None:
    """Remove a folder that this process holds."""
    os.close(_held.pop(folder))
    shutil.rmtree(folder, ignore_errors=True)


def write_whole(target: Path, content: bytes) -> None:
    """Write a file atomically. A second writer replaces it with the same bytes."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Remove some of our unused, week-old folders in *folder*; ignore failures."""
    with suppress(OSError):
        top = os.open(folder, _DIRECTORY)
        try:
            with os.scandir(top) as entries:
                names = [entry.name for entry in entries if _OURS.fullmatch(entry.name)]
            removed = 0
            for name in names:
                removed += _remove_unused(name, top)
                if removed >= _MOST:
                    return
        finally:
            os.close(top)


def _sweep_substitutes() -> None:
    """Sweep the substitutes that other processes have created for this user's folder."""
    own = private_folder()
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and folder != own:
                sweep(folder)
                if time.time() - status.st_mtime > KEPT:
                    folder.rmdir()  # works only if it is empty


def _remove_unused(name: str, parent: int) -> bool:
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError:
        return False
    try:
        if not _is_old(descriptor):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_old(descriptor):
            return False  # was used in the meantime
        if not name.startswith("temporary-") and _MARK not in os.listdir(descriptor):
            _mark(descriptor)
            return False
        shutil.rmtree(name, dir_fd=parent)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _is_old(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return status.st_uid == os.getuid() and time.time() - status.st_mtime > KEPT


def _mark(descriptor: int) -> None:
    """Mark a folder as used now."""
    os.close(os.open(_MARK, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=descriptor))


def _make(folder: Path) -> bool:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def _locked(folder: Path) -> int:
    descriptor = os.open(folder, _DIRECTORY)
    # Without locks, no process can lock a folder exclusively either, so nothing is swept.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _is(folder: Path, descriptor: int) -> bool:
    """Whether the folder at that path is still the one that is held."""
    try:
        return os.path.samestat(folder.lstat(), os.fstat(descriptor))
    except OSError:
        return False
