"""Drivers that outlive the task process that started them, and what they print."""

from __future__ import annotations

import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_MOST = 1024**2
"""Bytes of a driver's output that are brought into the task log when it has ended; the rest stays in its file."""


def output_path(folder: str, prefix: str) -> Path:
    """Return a new file for a driver's output, readable by this user only.

    :param folder: Airflow's folder for logs; where it cannot be written, the machine's temporary directory serves
    :param prefix: the job's
    """
    for root in (Path(folder), Path(tempfile.gettempdir())):
        place = root / "spark_recovery" / prefix
        path = place / f"driver-{uuid.uuid4().hex[:12]}.log"
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError:
            continue
        return path
    handle, name = tempfile.mkstemp(prefix="spark-recovery-driver-", suffix=".log")
    os.close(handle)
    return Path(name)


def start_detached(
    command: Sequence[str], environment: Mapping[str, str] | None, output: Path
) -> subprocess.Popen[bytes]:
    """Start *command* in a session of its own, with all that it prints in *output*: it outlives this process.

    :param environment: variables to set over those of this process
    :raises OSError: it cannot be started
    """
    try:
        return _start(command, environment, output)
    except OSError:
        output.unlink(missing_ok=True)
        raise


def _start(command: Sequence[str], environment: Mapping[str, str] | None, output: Path) -> subprocess.Popen[bytes]:
    with output.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 - the command is the one that SparkSubmitHook would start
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )


class Output:
    """What a driver prints, read from its file as it grows.

    :param offset: bytes that have been read already
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def lines(self, *, to_the_end: bool = False) -> Iterator[str]:
        """Yield the lines that have been written since the last time.

        :param to_the_end: also one without an end of line; of much only the last MiB
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
