"""The Airflow side on Airflow 3.1, the oldest that is supported, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.walk, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "apache-airflow==3.1.*",
    "apache-airflow-providers-amazon>=9.12",
    "apache-airflow-providers-apache-spark>=6.3",
    "apache-airflow-providers-cncf-kubernetes>=10.10",
    "pyspark-client==4.2.0",
    "pyspark==4.2.0",
    "moto[server]>=5.1",
    "pyarrow",
    "pandas<3",
    "pytest",
    "pytest-timeout",
    "selenium",
)
UNIT_TESTS = (
    "airflow_side/test_connection_test.py",
    "airflow_side/test_deploy_modes.py",
    "airflow_side/test_execute.py",
    "airflow_side/test_gc_dag.py",
    "airflow_side/test_settings.py",
    "airflow_side/test_steering.py",
    "airflow_side/test_submitting.py",
    "airflow_side/test_supervisor.py",
    "plugin/test_plugin.py",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has Airflow 3.1 and this package."""
    uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools" / "uv" / "bin" / "uv")
    environment = tmp_path_factory.mktemp("airflow-3.1") / "venv"
    interpreter = str(environment / "bin" / "python")
    install = [uv, "pip", "install", "-q", "--python", interpreter]
    subprocess.run([uv, "venv", "-q", "--python", "3.11", str(environment)], check=True)
    subprocess.run([*install, *PACKAGES], check=True)
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    return interpreter


def test_the_airflow_side_works_on_airflow_3_1(python: str, tmp_path: Path) -> None:
    """Its unit tests pass there; those of upstream's durable mode, which needs 3.3, are skipped."""
    version = [python, "-c", "import importlib.metadata as m; print(m.version('apache-airflow'))"]
    assert subprocess.run(version, capture_output=True, text=True, check=True).stdout.startswith("3.1.")
    tests = [str(ROOT / "tests" / name) for name in UNIT_TESTS]
    done = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::DeprecationWarning",  # of an old Airflow's libraries, which are newer
            "-m",
            "not process",
            f"--basetemp={tmp_path}/t",
            *tests,
        ],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow")},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
