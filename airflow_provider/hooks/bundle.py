"""The driver's side travels with the job: a zip for ``--py-files`` and the script that ``spark-submit`` starts.

Made from the installed package's files, by path: nothing of the Spark side is imported on a worker. The zip is the
same bytes for the same files, and is kept under its digest, so that a worker makes it once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import airflow_provider

_RINGS = ("recovery", "storage", "spark")
_EPOCH = (1980, 1, 1, 0, 0, 0)

_RUNNER = '''"""Starts the user's application inside spark-recovery's runner."""

import sys

try:
    from airflow_provider.spark.runner import main
except ImportError as error:
    sys.exit(
        "spark-recovery: the driver cannot load its own package (%s). Check that --py-files reaches the driver "
        "and that it runs Python 3.11 or newer." % error
    )
sys.exit(main(sys.argv[1:]))
'''


@dataclass(frozen=True)
class Bundle:
    """What is handed to ``spark-submit``: the zip with the package, and the primary resource."""

    package: Path
    runner: Path


def build_bundle(folder: Path | None = None) -> Bundle:
    """Return the bundle, made anew only if it is not there yet.

    Several tasks may do so at once: each builds in a folder of its own and moves it into place; who comes second uses
    what is there.

    :param folder: where bundles are kept; by default a folder of this user's in the machine's temporary directory
    """
    files = _files()
    digest = hashlib.sha256()
    for name, content in [*files.items(), ("runner", _RUNNER.encode())]:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    root = folder or _private_folder()
    place = root / digest.hexdigest()[:24]
    bundle = Bundle(place / "airflow_provider_driver.zip", place / "spark_recovery_runner.py")
    if not place.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix="building-", dir=root))
        _write_zip(building / bundle.package.name, files)
        (building / bundle.runner.name).write_text(_RUNNER)
        try:
            building.rename(place)
        except OSError:
            shutil.rmtree(building, ignore_errors=True)
            if not place.is_dir():
                raise
    return bundle


def _files() -> dict[str, bytes]:
    root = Path(airflow_provider.__file__).parent
    paths = [root / "__init__.py", *(path for ring in _RINGS for path in sorted((root / ring).rglob("*.py")))]
    return {f"airflow_provider/{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths}


def _write_zip(target: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)


def _private_folder() -> Path:
    """Return this user's own folder for bundles; nobody else may put code there."""
    folder = Path(tempfile.gettempdir()) / f"airflow-provider-spark-recovery-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        return Path(tempfile.mkdtemp(prefix="airflow-provider-spark-recovery-"))
    return folder
