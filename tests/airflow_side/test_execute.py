"""Tries without Spark: what is refused, what upstream's durable mode may remember, and what a failing store may spoil.

A small program stands for ``spark-submit``, and a small server for YARN's ResourceManager; all else is real.
"""

from __future__ import annotations

import copy
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException

from airflow_provider.airflow import ending_driver
from airflow_provider.airflow.driver_bundle import build_bundle
from airflow_provider.airflow.ending_driver import end_driver
from airflow_provider.core.job import JobId
from airflow_provider.operators.spark_recovery import job_of
from airflow_provider.storage.claims import Claim
from tests.airflow_side.executing import DRIVER, FINISHED, JOB, Make, State, claims, execute, needs_durable
from tests.support.waiting import wait_until


def test_a_task_can_be_copied(operator: Make) -> None:
    """Airflow deep-copies tasks, for a part of a DAG for example."""
    task = operator(resume="never", recovery_options={"write_buffer_size": "2 MiB"})
    assert copy.deepcopy(task).recovery_options == {"write_buffer_size": "2 MiB"}


def test_the_job_is_the_task_instance_without_its_try() -> None:
    """Mapped tasks are jobs of their own; a context without a map index means a task that is not mapped."""
    instance = SimpleNamespace(dag_id="d", run_id="r+1", task_id="t", map_index=3, try_number=1)
    jobs = [job_of(cast("Any", {"ti": instance}))]
    instance.try_number = 2
    jobs.append(job_of(cast("Any", {"ti": instance})))
    assert jobs[0] == jobs[1] == JobId(("d", "r+1", "t", "3"))
    instance.map_index = None
    assert job_of(cast("Any", {"ti": instance})) == JobId(("d", "r+1", "t", "-1"))


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"application": "/no/such/job.py"}, ["/no/such/job.py", "does not exist"]),
        ({"recovery_conn_id": "gone"}, ["'gone'", "airflow connections add gone --conn-type spark_recovery"]),
        ({"event_store": "s3a://bucket/prefix"}, ["s3a://bucket/prefix", "Write s3://bucket/prefix"]),
        ({"event_store": "file:///proc/nowhere"}, ["/proc/nowhere"]),
        ({"resume": "perhaps"}, ["'resume'", "'perhaps'", "'auto' or 'never'"]),
        ({"recovery_options": {"retries": 3}}, ["the operator has the unknown recovery option 'retries'"]),
        ({"recovery_options": '{"sinks": "once"}'}, ["recovery_options", "is a text", "render_template_as_native_obj"]),
        ({"application": "app.jar"}, ["app.jar", "JVM application", "SparkSubmitOperator"]),
        ({"application": None}, ["'application' is None", "path of a PySpark script"]),
        ({"application": Path("job.py")}, ["'application' is PosixPath('job.py')", "as a text"]),
    ],
)
def test_bad_input_fails_the_task_without_retries_and_submits_nothing(
    operator: Make, submits: Callable[[str], None], tmp_path: Path, parameters: dict[str, Any], names: list[str]
) -> None:
    """What no retry can cure is one clear error that names the thing and the remedy."""
    submits(f"open({str(tmp_path / 'submitted')!r}, 'w')")
    with pytest.raises(AirflowFailException) as error:
        execute(operator(**parameters))
    for name in names:
        assert name in str(error.value)
    assert not (tmp_path / "submitted").exists()


def test_disabled_recovery_submits_the_script_as_it_is(
    operator: Make, submits: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With enabled=false it is SparkSubmitOperator: no runner, no store, and no recovery connection needed.

    A script may import ``airflow_provider.spark`` all the same, on a cluster that does not have it.
    """
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_RECOVERY_DEFAULT")
    submits(f"import sys; open({str(tmp_path / 'submitted')!r}, 'w').write(' '.join(sys.argv[1:]))")
    own = {"application_args": ["a"], "env_vars": {"OWN": "1"}, "py_files": "helpers.py"}
    task = operator(recovery_options={"enabled": False}, **own)
    assert execute(task) is None
    submitted = (tmp_path / "submitted").read_text()
    assert submitted.endswith(f"{task.application} a")
    assert f"--py-files {build_bundle().package},helpers.py " in submitted
    assert not (tmp_path / "store").exists()


def test_disabled_recovery_submits_a_jvm_application_alone(
    operator: Make, submits: Callable[[str], None], tmp_path: Path
) -> None:
    """With enabled=false an application in Java runs, and nothing of ours goes along."""
    submits(f"import sys; open({str(tmp_path / 'submitted')!r}, 'w').write(' '.join(sys.argv[1:]))")
    execute(operator(recovery_options={"enabled": False}, application="app.jar", java_class="Main"))
    assert "--py-files" not in (tmp_path / "submitted").read_text()


def test_a_success_stands_when_the_store_cannot_be_read(
    operator: Make, submits: Callable[[str], None], tmp_path: Path
) -> None:
    """The store breaks after the driver has claimed the job; the driver succeeds, and so does the task."""
    store = tmp_path / "store"
    lost = f"import pathlib; folder = pathlib.Path({str(store)!r}); folder.rename({str(tmp_path / 'away')!r})"
    submits(DRIVER.format(end=f"{lost}; folder.symlink_to(folder)"))
    assert execute(operator()) is None
    assert store.is_symlink()


def test_a_success_that_is_not_recorded_is_a_success(
    operator: Make, submits: Callable[[str], None], tmp_path: Path
) -> None:
    """The driver could not record its end: the task succeeds, and nothing is acknowledged."""
    submits(DRIVER.format(end=""))
    report = execute(operator())
    assert report["state"] == "CREATED"
    assert claims(tmp_path).acknowledged(1) is None


def test_the_report_goes_to_xcom_as_json_and_is_kept(
    operator: Make, submits: Callable[[str], None], tmp_path: Path
) -> None:
    """What execute returns is plain JSON, and the same report is kept with the acknowledgement."""
    submits(DRIVER.format(end=FINISHED))
    report = execute(operator())
    assert json.loads(json.dumps(report)) == report
    assert report["state"] == "FINISHED"
    (kept,) = tmp_path.rglob("acks/00000001.json")
    assert json.loads(kept.read_text()) == {**report, "try_number": 1}


@needs_durable
def test_a_try_that_failed_after_its_job_had_succeeded_is_retried_without_the_job(
    operator: Make, submits: Callable[[str], None], tmp_path: Path
) -> None:
    """What comes after the job may fail the try (its value is no XCom, its worker is killed): the job is not run twice.

    Whoever clears the task, or tests it again and again in one run, gets it run.
    """
    submits(DRIVER.format(end=FINISHED))
    attempts = []
    for cleared, try_number in [(0, 1), (0, 2), (0, 3), (1, 4), (1, 4)]:
        report = execute(operator(), cleared=cleared, try_number=try_number)
        attempts.append(len(report["attempts"]))
    assert attempts == [1, 1, 1, 2, 3]
    assert [attempt["fresh"] for attempt in report["attempts"]] == [False, True, True]


def test_a_run_that_is_set_to_queued_between_two_tries_is_the_same_run(
    operator: Make, submits: Callable[[str], None]
) -> None:
    """Airflow gives it another start then, as it gives one that was deleted and made again; only that starts afresh."""
    begun = iter(datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))
    failed = "writer.append(ev.JobFailed(epoch=claim.epoch, error='ValueError: bad')); writer.flush(); sys.exit(1)"
    submits(DRIVER.format(end=failed))
    state = State()
    with pytest.raises(AirflowException, match="ValueError: bad"):
        execute(operator(), state, began=next(begun))
    with pytest.raises(AirflowException, match="ValueError: bad"):
        execute(operator(), state, began=next(begun), try_number=2)
    submits(DRIVER.format(end=FINISHED))
    report = execute(operator(), State(), began=next(begun))
    assert [attempt["fresh"] for attempt in report["attempts"]] == [False, False, True]


@needs_durable
def test_a_retry_does_not_start_anew_in_another_event_store(
    operator: Make, submits: Callable[[str], None], tmp_path: Path
) -> None:
    """It would find neither a driver that runs nor what is written; somebody who clears the task asks for that.

    A store that could not be used is none that a try has begun in.
    """
    state, other = State(), f"file://{tmp_path}/other"
    with pytest.raises(AirflowException):
        execute(operator(event_store="file:///proc/nowhere"), state)
    submits("raise SystemExit(1)")
    with pytest.raises(AirflowException, match="Cannot execute"):
        execute(operator(), state, try_number=2)
    with pytest.raises(AirflowFailException, match=f"changed from file://{tmp_path}/store to {other} .* Set it back"):
        execute(operator(event_store=other), state, try_number=3)
    submits(DRIVER.format(end=FINISHED))
    assert execute(operator(event_store=other), state, cleared=1, try_number=4)["state"] == "FINISHED"


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        (
            "writer.append(ev.JobFailed(epoch=claim.epoch, error='ValueError: bad')); writer.flush(); sys.exit(1)",
            AirflowException,
            "The Spark job failed in attempt 1: ValueError: bad. A retry resumes it.",
        ),
        (
            "writer.append(ev.JobFailed(epoch=claim.epoch, error='SyntaxError: bad', unrecoverable=True)); "
            "writer.flush(); sys.exit(1)",
            AirflowFailException,
            "The Spark job failed in attempt 1: SyntaxError: bad. No retry can help. Fix it and clear the task: it ",
        ),
        (
            "writer.append(ev.JobFailed(epoch=claim.epoch, error='AirflowFailException: bad', unrecoverable=True)); "
            "writer.flush(); sys.exit(1)",
            AirflowFailException,
            "The Spark job failed in attempt 1: AirflowFailException: bad. No retry can help. Fix it and clear the ",
        ),
        (
            "writer.append(ev.JobFailed(epoch=claim.epoch, error='AirflowSkipException: empty')); writer.flush(); "
            "sys.exit(1)",
            AirflowSkipException,
            "empty",
        ),
        ("print('spark-recovery: It is wrong. Fix it.'); sys.exit(2)", AirflowFailException, "It is wrong. Fix it."),
        (
            "print('12:00:00 ERROR spark-recovery: Attempt 1 is fenced.'); sys.exit(76)",
            AirflowException,
            "Attempt 1 is fenced.",
        ),
        (
            "print('12:00:00 ERROR spark-recovery: Attempt 1 is fenced: attempt 2 owns the job.', flush=True); "
            "import os; os.kill(os.getpid(), 9)",
            AirflowException,
            "Attempt 1 is fenced: attempt 2 owns the job.",
        ),
        ("sys.exit(137)", AirflowException, "Cannot execute: "),
    ],
)
def test_a_failure_is_told_in_the_drivers_own_words(
    operator: Make, submits: Callable[[str], None], end: str, kind: type[Exception], message: str
) -> None:
    """The script's error, one that no retry can cure, a wrong configuration, a fenced driver; else upstream's error."""
    submits(DRIVER.format(end=end))
    with pytest.raises(AirflowException) as error:
        execute(operator())
    assert type(error.value) is kind
    assert str(error.value).startswith(message)


def test_an_earlier_failure_is_not_told_again(operator: Make, submits: Callable[[str], None]) -> None:
    """A driver that dies before it claims the job left no words; those of the attempt before are not its own."""
    submits(
        DRIVER.format(end="writer.append(ev.JobFailed(epoch=1, error='ValueError: bad')); writer.flush(); sys.exit(1)")
    )
    with pytest.raises(AirflowException, match="ValueError: bad"):
        execute(operator())
    submits("import sys; sys.exit(137)")
    with pytest.raises(AirflowException, match="Error code is: 137") as error:
        execute(operator())
    assert "ValueError" not in str(error.value)


@needs_durable
def test_upstreams_durable_mode_does_not_take_an_earlier_run_for_this_one(yarn: Make) -> None:
    """An application that succeeded before anybody claimed the job did something else: the job is submitted."""
    state = State(spark_job_id="application_1_1", k8s_driver_status="Succeeded")
    assert execute(yarn(), state)["state"] == "FINISHED"
    assert state["spark_job_id"] == "application_1_3"


@needs_durable
def test_upstreams_durable_mode_reconnects_to_an_application_that_waits(yarn: Make, tmp_path: Path) -> None:
    """An application that was submitted and has not started yet is waited for, not submitted twice."""
    state = State(spark_job_id="application_1_2")
    assert execute(yarn(), state)["state"] == "NONE"
    assert "spark_job_id" not in state, "it recorded nothing: cleared, the task must run again"
    assert claims(tmp_path).newest() is None


@needs_durable
def test_a_cleared_task_is_submitted_although_upstream_remembers_its_success(yarn: Make) -> None:
    """After a success that was taken notice of, nothing that upstream remembers keeps the job from running again."""
    state = State()
    assert len(execute(yarn(), state)["attempts"]) == 1
    state["k8s_driver_status"] = "Succeeded"
    report = execute(yarn(), state)
    assert [attempt["epoch"] for attempt in report["attempts"]] == [1, 2]
    assert report["attempts"][1]["fresh"]
    assert "k8s_driver_status" not in state


def test_a_configuration_error_on_yarn_is_not_retried(yarn: Make, submits: Callable[[str], None]) -> None:
    """The driver's exit code is found in YARN's diagnostics, where spark-submit has ended long before."""
    submits("print('Submitted application application_1_4')")
    with pytest.raises(AirflowFailException, match="User application exited with status 2"):
        execute(yarn(), State())


SLEEPER = """\
import signal, sys, time
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.uris import open_store
if sys.argv[3] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
Claims(open_store(sys.argv[1]), sys.argv[2]).claim()
time.sleep(600)
"""


@pytest.mark.process
@pytest.mark.parametrize("manner", ["willing", "stubborn"])
def test_a_driver_of_this_machine_is_ended(manner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM, and SIGKILL for a driver that does not heed it."""
    monkeypatch.setattr(ending_driver, "GRACE", 0.5)
    store = f"file://{tmp_path}/store"
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, store, JOB.prefix, manner])
    try:
        wait_until(lambda: claims(tmp_path).newest(), "the claim")
        claim = claims(tmp_path).newest()
        assert claim is not None
        assert end_driver(claim, logging.getLogger("test"))
        assert process.wait(timeout=10) == (-15 if manner == "willing" else -9)
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_not_the_claims_is_never_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine's process id, and one that a later process has got, hit nobody."""

    def never(*_: object) -> None:
        raise AssertionError("a signal was sent")

    own = claims(tmp_path).claim()
    elsewhere = Claim(**{**vars(own), "host": "elsewhere"})
    earlier = Claim(**{**vars(own), "pid_started": own.pid_started - 1})
    monkeypatch.setattr("airflow_provider.storage.processes.os.kill", lambda _, number: number and never())
    monkeypatch.setattr("airflow_provider.storage.processes.signal.pidfd_send_signal", never)
    assert not end_driver(elsewhere, logging.getLogger("test"))
    assert "runs on elsewhere" in caplog.text
    assert end_driver(earlier, logging.getLogger("test"))
