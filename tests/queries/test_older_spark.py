"""Unmodified scripts on Spark 3.5, the oldest that is supported, in an environment of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.core import faults
from tests.queries.query_data import QuerySuite
from tests.queries.query_outputs import output_differences
from tests.queries.runs import JOBS, ScriptRuns
from tests.queries.seeded_moments import KILLED, well
from tests.support.sparks import OLDEST, ROOT, spark_python

pytestmark = [pytest.mark.process, pytest.mark.walk, pytest.mark.timeout(900)]

SCRIPTS = ("python_functions", "sql_only")


def test_scripts_are_recovered_on_spark_3_5(tpch: QuerySuite, tmp_path: Path) -> None:
    """Killed behind the third stored partition and run again: plain Spark's outputs, and something was reused."""
    target = tmp_path / "outputs"
    runs = ScriptRuns(tmp_path, JOBS / "all_scripts.py", (str(tpch.tables),), SCRIPTS, python=spark_python(OLDEST))
    runs.harness.environment = {"PYTHONPATH": str(ROOT)}
    well(runs.plain(tmp_path / "plain"))
    killed = runs.attempt(target, fault=f"{faults.AFTER_PARTITION_EVENT}@3")
    assert killed.code == KILLED, killed.log
    second = well(runs.attempt(target))
    told = {name: output_differences(tmp_path / "plain" / name, target / name) for name in SCRIPTS}
    assert {name: problems for name, problems in told.items() if problems} == {}
    assert runs.reused() > 0, second.log
