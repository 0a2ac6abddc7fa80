"""Tries of a task with real drivers: what the operator attaches to, resumes, starts afresh, and refuses."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_store import JobEventLog
from tests.airflow_side.conftest import Tries, xcom
from tests.support.blocked_imports import blocked_imports
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process


def rows(tries: Tries) -> int:
    return int(pq.read_table(tries.folder / "out").num_rows)


def test_kill_resume_clear(tries: Tries) -> None:
    """A killed try is resumed by the next; then the task is green, and clearing it starts afresh."""
    code, log = tries.run(env_vars={"SPARK_RECOVERY_FAULT": "after-partition-event@3"})
    assert code != 0
    assert "Kept for the next try" in log

    code, log = tries.run()
    assert code == 0, log
    report = xcom(log)
    totals = next(vertex for vertex in report["vertices"] if vertex["name"] == "totals")
    assert totals["reused"] >= 3
    assert totals["reused"] + totals["computed"] == 6
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FINISHED"]
    assert report["partitions_reused"] == totals["reused"]
    assert rows(tries) == 300
    assert not list((tries.folder / "store").rglob("*.parquet")), "partitions are released after success"

    code, log = tries.run()
    assert code == 0, log
    assert "its task was cleared" in log
    assert xcom(log)["partitions_reused"] == 0
    assert xcom(log)["partitions_computed"] == 10


def test_a_failed_task_that_is_cleared_resumes_and_never_starts_afresh_unless_told(
    tries: Tries, tmp_path: Path
) -> None:
    """After a failure of the script the next try reuses what is there; with resume='never' it computes all."""
    script = tmp_path / "failing.py"
    body = Path(tries.task["application"]).read_text()
    flag = tmp_path / "fixed"
    script.write_text(
        body.replace("graded.orderBy", f"import os\nassert os.path.exists({str(flag)!r})\ngraded.orderBy")
    )
    code, log = tries.run(application=str(script))
    assert code != 0
    assert "AssertionError" in log

    code, log = tries.run(application=str(script), resume="never")
    assert code != 0
    assert "resume is set to 'never'" in log
    assert "10 to compute" not in log
    assert "6 partitions, 0 reused, 6 to compute" in log

    flag.touch()
    code, log = tries.run(application=str(script))
    assert code == 0, log
    assert xcom(log)["partitions_reused"] == 10
    assert xcom(log)["partitions_computed"] == 0


def test_a_worker_dies_and_the_next_try_attaches_to_its_driver(tries: Tries, tmp_path: Path) -> None:
    """The worker is killed, the driver lives on as an orphan: the retry follows it and submits nothing."""
    gate, entered = tmp_path / "gate", tmp_path / "entered"
    script = tmp_path / "waiting.py"
    body = Path(tries.task["application"]).read_text()
    wait = (
        f"import os, pathlib, time\npathlib.Path({str(entered)!r}).touch()\n"
        f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.1)\n    print('waiting')\n"
    )
    script.write_text(body.replace("graded = checkpoint", f"{wait}graded = checkpoint"))
    first = tries.start(tmp_path / "first.log", application=str(script))
    try:
        wait_until(entered.exists, "the driver to reach the gate")
        claim = Claims(tries.store, tries.job.prefix).newest()
        assert claim is not None
        first.send_signal(signal.SIGKILL)
        first.wait()
        os.kill(claim.pid, 0)  # the driver lives

        second = tries.start(tmp_path / "second.log", application=str(script))
        wait_until(lambda: "attaching to it" in (tmp_path / "second.log").read_text(), "the second try to attach")
        gate.touch()
        assert second.wait(timeout=90) == 0, (tmp_path / "second.log").read_text()
    finally:
        gate.touch()
    log = (tmp_path / "second.log").read_text()
    assert "Spark-Submit cmd" not in log
    assert xcom(log)["state"] == "FINISHED"
    assert len(xcom(log)["attempts"]) == 1
    newest = Claims(tries.store, tries.job.prefix).newest()
    assert newest is not None
    assert newest.epoch == 1
    assert rows(tries) == 300


def test_finished_unseen(tries: Tries) -> None:
    """The driver had finished but no worker saw it: the next try succeeds at once and submits nothing."""
    code, log = tries.run(env_vars={"SPARK_RECOVERY_FAULT": "after-job-finished"})
    assert code != 0
    code, log = tries.run()
    assert code == 0, log
    assert "succeeded already" in log
    assert "Spark-Submit cmd" not in log
    assert xcom(log)["partitions_computed"] == 10


def test_disabled_is_plain_spark_submit(tries: Tries) -> None:
    """With enabled=false the script is submitted as it is and nothing is recorded."""
    code, log = tries.run(recovery_options={"enabled": False})
    assert code == 0, log
    assert "spark_recovery_runner" not in log
    assert not JobEventLog(tries.store, tries.job.prefix).read().events
    assert rows(tries) == 300


def test_a_configuration_error_of_the_driver_fails_the_task_without_retries(tries: Tries) -> None:
    """The driver's exit code 2 becomes AirflowFailException with the driver's own line."""
    code, log = tries.run(application_args=["only-one"], conf={"spark.ui.enabled": "false"})
    assert code != 0
    assert "AirflowFailException" not in log, "a failing script may be retried"
    code, log = tries.run(env_vars=blocked_imports(tries.folder / "blocked", "pyarrow"))
    assert code != 0
    assert "AirflowFailException: The Spark driver lacks the Python package pyarrow" in log
    assert "pip install pyarrow" in log
