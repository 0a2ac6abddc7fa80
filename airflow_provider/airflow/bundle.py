"""The driver's side travels with the job: a zip for ``--py-files`` and the script that ``spark-submit`` starts.

Made from the installed package's files, by path: nothing of the Spark side is imported on a worker. The zip is the
same bytes for the same files, and is kept under its digest, so that a worker makes it once.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import airflow_provider
from airflow_provider.core.run_request import EXIT_CONFIGURATION

_RINGS = ("core", "storage", "job", "spark")
_EPOCH = (1980, 1, 1, 0, 0, 0)

_RUNNER = f'''"""Starts the user's application inside spark-recovery's runner. Any Python 3 can read this file."""

import sys


def refuse(problem):
    sys.stderr.write("spark-recovery: " + problem + "\\n")
    sys.exit({EXIT_CONFIGURATION})


if sys.version_info < (3, 11):
    refuse("The driver runs Python %d.%d; it needs 3.11 or newer (PYSPARK_DRIVER_PYTHON or PYSPARK_PYTHON)."
           % sys.version_info[:2])
try:
    from airflow_provider.spark.runner import main
except ImportError as error:
    refuse("The driver cannot load the package that came with the job (%s). Make sure that --py-files reaches it."
           % error)
sys.exit(main(sys.argv[1:]))
'''


@dataclass(frozen=True)
class Bundle:
    """What is handed to ``spark-submit``: the zip with the package, and the primary resource."""

    package: Path
    runner: Path


def build_bundle(folder: Path | None = None) -> Bundle:
    """Return the bundle, made anew only if it is not there yet.

    Several tasks may do so at once, and a cleaner of temporary files may have taken a part of it: each file is put in
    its place as a whole, and always has the same bytes.

    :param folder: where bundles are kept; by default a folder of this user's in the machine's temporary directory
    """
    files = _files()
    digest = hashlib.sha256()
    for name, content in [*files.items(), ("runner", _RUNNER.encode())]:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    place = (folder or private_folder()) / digest.hexdigest()[:24]
    bundle = Bundle(place / "airflow_provider_driver.zip", place / "spark_recovery_runner.py")
    place.mkdir(parents=True, exist_ok=True)
    if not bundle.package.is_file():
        _write(bundle.package, _zipped(files))
    if not bundle.runner.is_file():
        _write(bundle.runner, _RUNNER.encode())
    return bundle


def _files() -> dict[str, bytes]:
    root = Path(airflow_provider.__file__).parent
    paths = [root / "__init__.py", *(path for ring in _RINGS for path in sorted((root / ring).rglob("*.py")))]
    return {f"airflow_provider/{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths}


def _zipped(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def _write(target: Path, content: bytes) -> None:
    """Write a file that is whole as soon as it is there. Whoever is second replaces it by the same bytes."""
    handle, name = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def private_folder() -> Path:
    """Return this user's own folder for what is handed to ``spark-submit``; nobody else may put code there."""
    folder = Path(tempfile.gettempdir()) / f"airflow-provider-spark-recovery-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        return Path(tempfile.mkdtemp(prefix="airflow-provider-spark-recovery-"))
    return folder
