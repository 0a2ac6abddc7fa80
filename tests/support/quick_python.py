"""Python processes that start quickly: most of the tests' live for seconds, and spend them on importing modules.

Settings of Spark (``QUICK_WORKERS``) let its Python workers have what they import from the start (``worker_daemon``).

``python -m tests.support.quick_python`` compiles what drivers, their workers and S3's stand-in import; ``tools/setup.sh
quick`` does so once, and ``tools/setup.sh sparks`` for other Sparks. What pytest and Airflow import is kept when they
import it. Tests keep nothing (``keep_no_more``): Python would take a module that a test changes within a second for the
old one.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

_MODULES = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.pandas",
    "pyspark.sql.functions",
    "pandas",
    "pyarrow.parquet",
    "pyarrow.dataset",
    "boto3.s3.transfer",
    "moto.server",
    "moto.s3.responses",
    "airflow_provider.cli.main",
)
QUICK_WORKERS = {
    "spark.python.daemon.module": "tests.support.worker_daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
}
_STARTUP = Path(__file__).parent / "startup"
_KEEP = {"PYTHONDONTWRITEBYTECODE": ""}


def quick_airflow(*path: Path) -> dict[str, str]:
    """For the environment of Airflow's processes: they keep what they compile, and import Kubernetes' client late.

    :param path: where they find further modules
    """
    folders = [str(_STARTUP), *map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**_KEEP, "PYTHONPATH": os.pathsep.join(folders)}


def keep_no_more() -> None:
    """From now on this process, and those that it starts, keep no compiled module."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def compile_modules() -> None:
    """Import what tests' processes will import, unless that was done before."""
    packages = [importlib.util.find_spec(name) for name in sorted({name.partition(".")[0] for name in _MODULES})]
    if all(package is not None and Path(str(package.cached)).exists() for package in packages):
        return
    command = [sys.executable, "-W", "ignore", "-c", f"import {', '.join(_MODULES)}"]
    # Without it all works as well, more slowly.
    subprocess.run(command, env={**os.environ, **_KEEP}, capture_output=True, check=False)


if __name__ == "__main__":
    compile_modules()
