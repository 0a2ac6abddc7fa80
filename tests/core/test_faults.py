"""Fault points: nothing unless asked, and then a SIGKILL at exactly that passage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from airflow_provider.core.faults import POINTS, fault_point

_PROGRAM = """
from airflow_provider.core.faults import fault_point
for number in range(1, 5):
    fault_point("before-flush")
    print(number, flush=True)
    fault_point("after-flush")
"""


@pytest.mark.parametrize(
    ("fault", "printed", "code"),
    [
        ("", "1234", 0),
        ("something-else", "1234", 0),
        ("before-flush", "", -signal.SIGKILL),
        ("after-flush", "1", -signal.SIGKILL),
        ("before-flush@3", "12", -signal.SIGKILL),
        ("before-flush@9", "1234", 0),
    ],
)
def test_a_process_dies_at_the_passage_that_was_asked_for(fault: str, printed: str, code: int) -> None:
    """By name, and by count of passages."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=os.environ | {"SPARK_RECOVERY_FAULT": fault},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout.replace("\n", ""), done.returncode) == (printed, code)


def test_a_point_in_a_child_ends_the_process_that_is_named() -> None:
    """An executor's process ends the driver."""
    victim = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    child = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env=os.environ | {"SPARK_RECOVERY_FAULT": "after-flush", "SPARK_RECOVERY_FAULT_PID": str(victim.pid)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.wait(30) == -signal.SIGKILL
    assert child.poll() is None, "the child must not go on either"
    child.kill()
    assert child.communicate()[0] == "1\n"
    assert victim.stdin is not None
    victim.stdin.close()


def test_without_the_variable_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every point is passed."""
    monkeypatch.delenv("SPARK_RECOVERY_FAULT", raising=False)
    for point in POINTS:
        fault_point(point)
    assert len(set(POINTS)) == len(POINTS)
