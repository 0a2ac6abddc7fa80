"""Failover in auto mode on two executors: one is killed, or what was put back on one cannot be fetched."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.failing_queries import FAILOVERS, ROWS, STRATEGIES
from tests.support.driver import JOBS, SPARK_SETTINGS
from tests.support.sparks import ROOT
from tests.support.standalone import EXECUTOR_SETTINGS

pytestmark = [pytest.mark.integration, pytest.mark.process]

SETTINGS = {
    "spark.master": "local-cluster[2,2,512]",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}
RIGHT = [list(row) for row in ROWS]


CELLS = [*itertools.product(("executor", "fetch"), STRATEGIES, FAILOVERS)]
IN_CI = {
    ("executor", "none", "region"),
    ("executor", "exponential-delay", "region"),
    ("executor", "fixed-delay", "full"),
    ("fetch", "fixed-delay", "region"),
    ("fetch", "failure-rate", "full"),
}
"""Each failure, strategy and kind of failover; the other cells are for the walk."""


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a driver has to say that lets each of those fail that are asked for."""
    asked = CELLS if request.config.getoption("--walk") else sorted(IN_CI)
    folder = tmp_path_factory.mktemp("failing")
    given = {**SPARK_SETTINGS, **EXECUTOR_SETTINGS, "spark.local.dir": str(folder / "local"), **SETTINGS}
    flags = " ".join(f'--conf "{name}={value}"' for name, value in given.items())
    done = subprocess.run(
        [
            sys.executable,
            JOBS / "failing_over_on_executors.py",
            folder / "attempts",
            folder / "answers",
            json.dumps(asked),
        ],
        env={
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        },
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return {answer["cell"]: answer for answer in map(json.loads, Path(folder, "answers").read_text().splitlines())}


@pytest.mark.walk
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("failure", "strategy", "failover"),
    [pytest.param(*cell, marks=[] if cell in IN_CI else pytest.mark.walk) for cell in CELLS],
)
def test_what_is_kept_outlives_executors(answers: dict[str, Any], failure: str, strategy: str, failover: str) -> None:
    """Its reducer's own executor is killed, or a map output that was put back cannot be fetched: what is stored is put
    back on executors that live, in the attempt or by the next one; all of it runs again with ``full``.
    """
    answer, restarted = answers[f"{failure}-{strategy}-{failover}"], strategy != "none"
    assert answer["lost"]
    assert answer["restarts"] == restarted
    reason = "ExecutorLostFailure" if failure == "executor" else "maximum allowable number of times"
    assert answer["told"] == RIGHT if restarted else reason in answer["told"]
    maps = {str(index): 1 + (restarted and failover == "full") for index in range(2)}
    assert answer["ran"][0] == maps
    if failure == "executor":
        assert answer["ran"][1] == {"0": 1 + restarted}
    assert answer["then"] == ([] if restarted else [RIGHT, {"0": 1, "1": 1}])
