"""Provide the packages that an ``s3://`` store needs on a machine without them, from what came with the job.

Only this module decides whose packages are used. A machine's own packages always come first: the job's are added at the
end of ``sys.path``, and only if one is missing. They are unpacked in a folder that only this user can write to, because
botocore reads its data by path. Processes unpack them concurrently, file by file, and check all of it before use.
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
    """Make botocore and tenacity importable if they are available at all.

    :raises ConfigurationError: the job's packages cannot be unpacked
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
    """Return a folder with the packages of the zip *content*; missing or damaged files are written again."""
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
