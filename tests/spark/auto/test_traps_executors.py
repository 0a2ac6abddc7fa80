"""An executor that dies with restored map outputs costs no rows: trap 2, on a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.driver import JOBS, SPARK_SETTINGS
from tests.support.standalone import EXECUTOR_SETTINGS, standalone_cluster

ROOT = Path(__file__).parents[3]


@pytest.mark.integration
@pytest.mark.process
def test_an_executor_with_restored_map_outputs_may_die(tmp_path: Path, orders: Path) -> None:
    """What it held is computed again on the others by the true child; the rows are plain Spark's."""
    with standalone_cluster(tmp_path, environment={"PYTHONPATH": str(ROOT)}) as cluster:
        settings = {**SPARK_SETTINGS, **EXECUTOR_SETTINGS, "spark.master": cluster.url, "spark.executor.cores": "1"}
        settings["spark.executorEnv.PYTHONPATH"] = str(ROOT)
        flags = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
        done = subprocess.run(
            [sys.executable, str(JOBS / "lost_executor.py"), str(tmp_path / "attempts"), str(orders)],
            env={
                **os.environ,
                "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell",
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
