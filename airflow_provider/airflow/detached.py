"""Start drivers that outlive the task process, and read what they print."""

from __future__ import annotations

import fcntl
import os
import random
import re
import stat
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from airflow_provider.storage.private_files import private_folder

KEPT = 30 * 24 * 3600.0
"""Seconds for which an output is kept that nobody has removed."""
_FOLDER = "spark_recovery"
_OUTPUT = re.compile(r"driver-[0-9a-f]{12}\.log")
_LOOKS = 2000
"""Names that one sweep looks at, more or less."""
_MOST = 1024**2
"""Bytes of a driver's output that are brought into the task log when it has ended; the rest stays in its file."""


def output_path(folder: str, prefix: str) -> Path:
    """Return a new file for a driver's output, readable by this user only; remove some old ones.

    :param folder: Airflow's log folder; if it is not writable, this user's own folder in the machine's temporary
        directory is used
    :param prefix: the job's key prefix
    :raises OSError: neither folder is writable
    """
    usual, last_resort = Path(folder) / _FOLDER, private_folder() / _FOLDER
    for root in (usual, last_resort):
        with suppress(OSError):
            sweep_outputs(root)
    try:
        return _new_output(usual / prefix)
    except OSError:
        return _new_output(last_resort / prefix)


def _new_output(place: Path) -> Path:
    path = place / f"driver-{uuid.uuid4().hex[:12]}.log"
    for last in (*[False] * 9, True):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except FileNotFoundError:  # another process has swept the empty folder
            if last:
                raise
            continue
        break
    return path


def sweep_outputs(root: Path) -> None:
    """Remove outputs below *root* that have not changed for 30 days and that no driver holds open.

    A driver holds a lock on its output. Each call looks at a limited number of names, in random order, so that all of
    them get their turn; it follows no symbolic link and touches nothing of other users.
    """
    looked = 0
    for _, folders, files, descriptor in os.fwalk(root, follow_symlinks=False):
        random.shuffle(folders)
        for name in files:
            if _OUTPUT.fullmatch(name):
                _remove_old(name, descriptor)
        for name in folders:
            with suppress(OSError):
                os.rmdir(name, dir_fd=descriptor)  # works only on an empty one
        looked += len(folders) + len(files)
        if looked > _LOOKS:
            return


def _remove_old(name: str, parent: int) -> None:
    with suppress(OSError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(descriptor)
            own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
            if own and time.time() - status.st_mtime > KEPT:
                os.unlink(name, dir_fd=parent)
        finally:
            os.close(descriptor)


def start_detached(
    command: Sequence[str], environment: Mapping[str, str] | None, output: Path
) -> subprocess.Popen[bytes]:
    """Start *command* in its own session, with all its output in *output*: it outlives this process.

    :param environment: variables to add to this process's own
    :raises OSError: it cannot be started
    """
    try:
        with output.open("ab") as file:
            # The driver inherits the lock with the open file, and keeps it as long as any process can write to it.
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_SH)
            return subprocess.Popen(  # noqa: S603 - the command is the one that SparkSubmitHook would start
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
    except OSError:
        output.unlink(missing_ok=True)
        raise


class Output:
    """Reads a driver's output from its file as it grows.

    :param offset: bytes already read
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def lines(self, *, to_the_end: bool = False) -> Iterator[str]:
        """Yield the lines written since the last call.

        :param to_the_end: include an unfinished last line; of a large output, yield only the last MiB
        """
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if to_the_end and size - self.offset > _MOST:
                    yield f"[{size - self.offset - _MOST:,} bytes are left out here; see {self.path}]"
                    self.offset = size - _MOST
                file.seek(self.offset)
                for line in file:
                    if not line.endswith(b"\n") and not to_the_end:
                        return
                    self.offset += len(line)
                    yield line.decode("utf-8", "replace")
        except OSError:
            return

    def remove(self) -> None:
        """Delete the file, unless not all of it was read."""
        try:
            if self.path.stat().st_size <= _MOST:
                self.path.unlink()
        except OSError:
            return
