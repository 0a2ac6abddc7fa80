"""Unmodified scripts on Spark 3.5, the oldest that is supported, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from airflow_provider.recovery import faults
from tests.queries.data import QuerySuite
from tests.queries.moments import KILLED, well
from tests.queries.outputs import output_differences
from tests.queries.runs import JOBS, ScriptRuns

pytestmark = [pytest.mark.process, pytest.mark.walk, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PACKAGES = ("pyspark==3.5.8", "pyarrow", "pandas<3", "boto3", "tenacity", "setuptools")
SCRIPTS = ("python_functions", "sql_only")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has Spark 3.5."""
    uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools" / "uv" / "bin" / "uv")
    environment = tmp_path_factory.mktemp("spark-3.5") / "venv"
    interpreter = str(environment / "bin" / "python")
    subprocess.run([uv, "venv", "-q", "--python", "3.11", str(environment)], check=True)
    subprocess.run([uv, "pip", "install", "-q", "--python", interpreter, *PACKAGES], check=True)
    return interpreter


def test_scripts_are_recovered_on_spark_3_5(python: str, tpch: QuerySuite, tmp_path: Path) -> None:
    """Killed behind the third stored partition and run again: plain Spark's outputs, and something was reused."""
    target = tmp_path / "outputs"
    runs = ScriptRuns(tmp_path, JOBS / "all_scripts.py", (str(tpch.tables),), SCRIPTS, python=python)
    runs.harness.environment = {"PYTHONPATH": str(ROOT)}
    well(runs.plain(tmp_path / "plain"))
    killed = runs.attempt(target, fault=f"{faults.AFTER_PARTITION_EVENT}@3")
    assert killed.code == KILLED, killed.log
    second = well(runs.attempt(target))
    told = {name: output_differences(tmp_path / "plain" / name, target / name) for name in SCRIPTS}
    assert {name: problems for name, problems in told.items() if problems} == {}
    assert runs.reused() > 0, second.log
