"""Build what travels with the job: the zip for ``--py-files``, and the script that ``spark-submit`` starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airflow_provider.core.run_request import EXIT_CONFIGURATION
from airflow_provider.storage.bundle import build_package
from airflow_provider.storage.private_files import write_whole

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
    """The two files for ``spark-submit``: the zip with the package, and the primary resource."""

    package: Path
    runner: Path


def build_bundle(folder: Path | None = None) -> Bundle:
    """Return the bundle, building whatever is missing.

    :param folder: folder that keeps bundles; see :func:`build_package`
    """
    package, content = build_package(folder), _RUNNER.encode()
    bundle = Bundle(package, package.with_name("spark_recovery_runner.py"))
    if not bundle.runner.is_file() or bundle.runner.read_bytes() != content:
        write_whole(bundle.runner, content)
    return bundle
