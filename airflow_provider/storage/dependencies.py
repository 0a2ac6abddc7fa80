"""The packages that an ``s3://`` store needs, on a machine that has none of its own: they came with the job.

The one place that decides whose packages are used. A machine's own come first, always: what came with the job is added
at the end of ``sys.path``, and only where something is missing. It lies unpacked in a folder that nobody else can write
to, because botocore reads its data by path; processes unpack it side by side, file by file, and check all of it before
they use it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import pkgutil
import sys
import zipfile
import zlib
from pathlib import Path

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.storage.bundle import DEPENDENCIES
from airflow_provider.storage.private_files import hold, private_folder, write_whole

_NEEDED = ("botocore", "tenacity")


def provide_dependencies() -> None:
    """Make botocore and tenacity importable, if they are here at all.

    :raises ConfigurationError: what came with the job cannot be unpacked
    """
    if all(importlib.util.find_spec(name) for name in _NEEDED):
        return
    try:
        content = pkgutil.get_data(__package__, DEPENDENCIES)
    except OSError:
        return  # an installed package, not one that came with a job
    if content is None:
        return
    try:
        place = str(_unpacked(content))
    except OSError as error:
        raise ConfigurationError(
            f"The packages that came with the job cannot be unpacked: {error}.",
            remedy="Give the folder for temporary files (TMPDIR) some room, or install botocore and tenacity for the "
            "driver's and the executors' Python.",
        ) from error
    if place not in sys.path:
        sys.path.append(place)
        importlib.invalidate_caches()


def _unpacked(content: bytes) -> Path:
    """Return a folder with the packages in the zip *content*; what is missing or damaged in it is written anew."""
    folder = hold(private_folder() / f"dependencies-{hashlib.sha256(content).hexdigest()[:24]}")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            file = folder / entry.filename
            if not _is(file, entry):
                write_whole(file, archive.read(entry))
    return folder


def _is(file: Path, entry: zipfile.ZipInfo) -> bool:
    try:
        return zlib.crc32(file.read_bytes()) == entry.CRC
    except FileNotFoundError:
        return False
