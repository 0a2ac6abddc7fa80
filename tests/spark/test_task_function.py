"""The driver's side of ``@task.spark_recovery``: what a function returns is kept for the operator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider.spark.task_function import run_task_function

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the value goes without an event store, beside the script."""
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "script.py")])
    return tmp_path / "script.json"


@pytest.mark.parametrize("code", [0, None])
def test_a_function_that_exits_without_an_error_returns_nothing(kept: Path, code: int | None) -> None:
    """Like any script that ends with ``sys.exit(0)``, its job has succeeded; the operator looks for a value."""
    run_task_function(lambda: sys.exit(code), [], "{}")
    assert kept.read_text() == "null"


def test_a_function_that_exits_with_an_error_fails(kept: Path) -> None:
    """With the code that it gives."""
    with pytest.raises(SystemExit, match="3"):
        run_task_function(lambda: sys.exit(3), [], "{}")
    assert not kept.exists()
