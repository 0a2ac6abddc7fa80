"""Deferrable mode without Spark: a small program stands for ``spark-submit`` and its driver, all else is real."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.exceptions import TaskDeferralTimeout
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_provider.core.errors import Fenced, StoreUnavailable
from airflow_provider.operators import deferral
from airflow_provider.operators.deferral import Deferral
from airflow_provider.storage.cancelling import refuse_cancelled
from airflow_provider.storage.claims import Claims, process_is_gone
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.uris import open_store
from tests.airflow_side.deferring import deferred_by, first_event, rebuilt, resume, run_try
from tests.airflow_side.executing import (
    DRIVER,
    FINISHED,
    JOB,
    WAITING,
    Connect,
    Make,
    State,
    claims,
    needs_durable,
)
from tests.airflow_side.executing import context_of as context
from tests.airflow_side.worker import TASK_INSTANCE
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process

QUICK = {"previous_worker_recovery_timeout": "1 s"}


class Job:
    """A driver that waits at a gate, and its task."""

    def __init__(self, operator: Make, submits: Any, folder: Path) -> None:
        self.gate = folder / "gate"
        self._operator = operator
        self._folder = folder
        submits("import os, time\n" + DRIVER.format(end=WAITING.format(gate=str(self.gate), end=FINISHED)))

    def task(self, **parameters: Any) -> Any:
        return self._operator(**{"deferrable": True, "recovery_options": QUICK, **parameters})

    def open(self, _: Any = None) -> None:
        self.gate.touch()

    def claim(self, epoch: int = 1) -> Any:
        return claims(self._folder).get(epoch)

    def begun(self) -> None:
        """Wait until the driver has begun: one that dies before is no attempt that a report could tell of."""
        log = JobEventLog(open_store(f"file://{self._folder}/store"), JOB.prefix)
        wait_until(lambda: log.read().events, "the driver to begin")

    def kill(self, _: Any = None) -> None:
        self.begun()
        os.kill(self.claim().pid, signal.SIGKILL)


@pytest.fixture
def job(operator: Make, submits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path / "logs"))
    made = Job(operator, submits, tmp_path)
    yield made
    made.open()
    newest = claims(tmp_path).newest()
    if newest is not None and not newest.cancels and newest.pid != os.getpid():
        wait_until(lambda: process_is_gone(newest), "the driver to end")


def test_a_local_driver_runs_on_while_nobody_waits(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    """The task is deferred once the driver has claimed the job; the driver's output is in the task log at the end."""
    seen = []

    def between(deferred: TaskDeferred) -> None:
        seen.append(process_is_gone(job.claim()))
        assert "the driver ends" not in capfd.readouterr().out
        job.open()

    report, times = run_try(job.task, context(), between)
    assert (report["state"], times, seen) == ("FINISHED", 1, [False])
    assert "the driver ends" in capfd.readouterr().out
    assert claims_acknowledged(job)


def claims_acknowledged(job: Job) -> bool:
    return claims(job._folder).acknowledged(1) is not None


def test_what_is_kept_is_json_without_secrets(job: Job, connect: Connect) -> None:
    """Connections are named; what they hold is not told."""
    connect("aws", "aws", login="AKIA", password="sesame", extra={"region_name": "us-east-1"})
    connect(
        "spark_recovery_default",
        "spark_recovery",
        extra={"event_store": f"file://{job._folder}/store", "aws_conn_id": "aws", "region": "eu-west-1"},
    )
    deferred = deferred_by(lambda: job.task().execute(context()))
    kept = json.dumps([deferred.trigger.serialize(), deferred.kwargs])
    assert "sesame" not in kept
    assert "AKIA" not in kept
    _, kwargs = deferred.trigger.serialize()
    assert kwargs["settings"] == {"aws_conn_id": "aws", "region": "eu-west-1"}
    assert kwargs["recovery_conn_id"] == "spark_recovery_default"


def test_the_trigger_does_not_need_the_spark_connection(job: Job, connect: Connect) -> None:
    """A triggerer that must not see how the cluster is reached, or cannot use it, follows the job all the same."""

    def between(_: TaskDeferred) -> None:
        connect("spark_default", "spark", host="local[2]", extra={"spark-binary": "none-of-these"})
        job.open()

    deferred = deferred_by(lambda: job.task().execute(context()))
    between(deferred)
    assert first_event(rebuilt(deferred))["kind"] == "finished"


def test_a_retry_attaches_to_the_living_driver_and_defers(job: Job, tmp_path: Path) -> None:
    """The first try's trigger is lost; the second one submits nothing, and runs what is to be run after the job."""
    deferred_by(lambda: job.task().execute(context()))

    def between(deferred: TaskDeferred) -> None:
        assert (deferred.kwargs or {})["attached"]
        job.open()

    after = tmp_path / "after"
    report, times = run_try(lambda: job.task(post_submit_commands=[f"touch {after}"]), context(), between)
    assert (report["state"], len(report["attempts"]), times) == ("FINISHED", 1, 1)
    assert after.exists()


@needs_durable
def test_a_driver_that_is_older_than_the_clearing_is_followed_by_another(job: Job) -> None:
    """It is never doubled; when it has finished, the try goes on from what it has left, with the inputs as they are."""
    deferred_by(lambda: job.task().execute(context()))
    report, times = run_try(job.task, context(cleared=1), job.open)
    assert [attempt["state"] for attempt in report["attempts"]] == ["FINISHED", "FINISHED"]
    assert times == 2


def test_a_lost_driver_fails_the_try_and_the_next_one_resumes(job: Job) -> None:
    """The driver is killed: the retry starts another one."""
    with pytest.raises(AirflowException, match=r"The Spark driver was lost, attempt 1: its heartbeat has stopped"):
        run_try(job.task, context(), job.kill)
    report, _ = run_try(job.task, context(), job.open)
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FINISHED"]


def test_a_driver_that_is_lost_while_a_try_is_attached_is_replaced_in_the_same_try(job: Job) -> None:
    """As without deferring."""
    deferred_by(lambda: job.task().execute(context()))
    steps = iter([job.kill, job.open])
    report, times = run_try(job.task, context(), lambda deferred: next(steps)(deferred))
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FINISHED"]
    assert times == 2


def test_a_silent_driver_that_lives_on_this_machine_is_waited_for(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is stopped for a while: two drivers of one job must never run."""
    deferrals = []

    def between(deferred: TaskDeferred) -> None:
        deferrals.append(deferred.trigger.serialize()[1]["timeout"])
        if len(deferrals) == 1:
            os.kill(job.claim().pid, signal.SIGSTOP)
        else:
            os.kill(job.claim().pid, signal.SIGCONT)
            job.open()

    report, _ = run_try(job.task, context(), between)
    assert len(report["attempts"]) == 1
    assert deferrals == [1.0, 2.0]


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        ("raise SystemExit(3)", AirflowException, "The driver ended before it began. Error code is: 3."),
        ("print('spark-recovery: It is wrong.'); raise SystemExit(2)", AirflowFailException, "It is wrong."),
    ],
)
def test_a_driver_that_ends_before_it_begins_is_told_at_once(
    operator: Make, submits: Any, job: Job, end: str, kind: Any, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """No trigger is needed for that: the output and the exit code say why."""
    submits(f"print('so far so good')\n{end}")
    with pytest.raises(AirflowException) as error:
        job.task().execute(context())
    assert type(error.value) is kind
    assert str(error.value) == message
    assert "so far so good" in capfd.readouterr().out


def test_an_outage_of_the_store_while_a_driver_starts_is_waited_for(
    job: Job, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The driver, which has started, may reach it."""
    looks, taken = itertools.count(), Claims.taken

    def in_an_outage(claims: Claims, epoch: int) -> bool:
        if next(looks) < 3:
            raise StoreUnavailable("The event store does not answer.")
        return taken(claims, epoch)

    monkeypatch.setattr(Claims, "taken", in_an_outage)
    report, _ = run_try(job.task, context(), job.open)
    assert report["state"] == "FINISHED"
    assert capfd.readouterr().out.count("is not known now: The event store does not answer.") == 1


@pytest.mark.parametrize("how", ["ends", "killed", "never begins"])
def test_what_is_to_run_after_the_job_runs_for_one_that_does_not_begin(
    operator: Make, submits: Any, job: Job, tmp_path: Path, how: str
) -> None:
    """``post_submit_commands`` may end a sidecar of the worker's pod, which would otherwise go on for ever."""
    after, begun = tmp_path / "after", tmp_path / "begun"
    wait = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    submits("raise SystemExit(3)" if how == "ends" else wait)
    limit = {"start_timeout": 3.0} if how == "never begins" else {}
    task = job.task(post_submit_commands=[f"sh -c 'echo ran >> {after}'"], **limit)
    with ThreadPoolExecutor(1) as pool:
        tried = pool.submit(task.execute, context())
        if how == "killed":
            wait_until(begun.exists, "the driver to start")
            task.on_kill()
        with pytest.raises(AirflowException):
            tried.result(60)
    assert after.read_text() == "ran\n"


def test_a_failure_is_told_in_the_drivers_own_words(job: Job, submits: Any) -> None:
    """And one that no retry can help ends the task."""
    end = "writer.append(ev.JobFailed(epoch=claim.epoch, error='SyntaxError: bad', unrecoverable=True)); writer.flush()"
    submits(DRIVER.format(end=end))
    with pytest.raises(AirflowFailException, match=r"SyntaxError: bad\. No retry can help"):
        run_try(job.task, context())


def test_marking_the_task_ends_the_driver(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    """The trigger fences it and, as it is on this machine, ends its process; the next try resumes."""
    deferred = deferred_by(lambda: job.task().execute(context()))
    job.begun()
    end_by_trigger(deferred)
    wait_until(lambda: process_is_gone(job.claim()), "the driver to end")
    assert job.claim(2).cancels
    report, _ = run_try(job.task, context(), job.open)
    assert [attempt["epoch"] for attempt in report["attempts"]] == [1, 3]
    assert "attempt 1 was ended when its task was marked or cleared" in capfd.readouterr().out


def test_marking_the_task_ends_the_driver_though_airflow_cancels_that(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A triggerer cancels a trigger again and again until it has ended, and on_kill with it: a busy Airflow may not
    have told the state of the task by then.
    """
    trigger = rebuilt(deferred_by(lambda: job.task().execute(context())))
    monkeypatch.setattr(type(trigger), "task_instance", SimpleNamespace(**TASK_INSTANCE))
    asked, told = threading.Event(), threading.Event()

    def states(**_: Any) -> dict[str, Any]:
        asked.set()
        assert told.wait(60)
        return {str(TASK_INSTANCE["run_id"]): {TASK_INSTANCE["task_id"]: "failed"}}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", states)

    async def triggerer() -> None:
        killing = asyncio.create_task(trigger.on_kill())
        while not asked.is_set():
            await asyncio.sleep(0.01)
        killing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killing
        told.set()
        while not process_is_gone(job.claim()):
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(triggerer(), 60))
    assert job.claim(2).cancels


def end_by_trigger(deferred: TaskDeferred) -> None:
    asyncio.run(rebuilt(deferred).on_kill())


def test_a_timeout_ends_the_driver(job: Job) -> None:
    """Airflow notices it while the task is deferred; a worker then fails the task."""
    task = job.task(execution_timeout=timedelta(hours=1))
    deferred = deferred_by(lambda: task.execute(context()))
    assert timedelta(minutes=59) < cast("timedelta", deferred.timeout) <= timedelta(hours=1)
    with pytest.raises(TaskDeferralTimeout):
        job.task().resume_execution("__fail__", {"error": "Trigger timeout"}, context())
    wait_until(lambda: process_is_gone(job.claim()), "the driver to end")


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_timeout_ends_an_application_that_still_waits(yarn: Make, submits: Any, tmp_path: Path, earlier: int) -> None:
    """One that has not claimed the job would run one day, and write what a failed task's must not."""
    store = open_store(f"file://{tmp_path}/store")
    if earlier:  # an attempt that has failed on another machine
        claim, key = claims(tmp_path).claim(), f"{JOB.prefix}/claims/00000001.json"
        store.put(key, json.dumps({**json.loads(store.get(key)), "host": "elsewhere"}).encode())
        Heartbeat(store, JOB.prefix, claim, 1.0, on_fenced=lambda _: None).stop("FAILED")
    submits("print('Submitted application application_1_2')")
    make = lambda: yarn(deferrable=True, recovery_options=QUICK, execution_timeout=timedelta(hours=1))  # noqa: E731
    deferred_by(lambda: make().execute(context(State())))
    with pytest.raises(TaskDeferralTimeout):
        make().resume_execution("__fail__", {"error": "Trigger timeout"}, context(State()))
    newest = claims(tmp_path).newest()
    assert newest is not None
    assert (newest.epoch, newest.cancels) == (earlier + 1, True)
    with pytest.raises(Fenced, match="cancelled before it began"):
        refuse_cancelled(store, JOB.prefix, claims(tmp_path).claim(), earlier)


def test_an_application_on_yarn_is_only_submitted(yarn: Make, submits: Any, tmp_path: Path) -> None:
    """spark-submit is told not to wait, the application's id is remembered, and the end is the driver's word."""
    submits(
        "import sys\nassert 'spark.yarn.submit.waitAppCompletion=false' in sys.argv\n"
        + DRIVER.format(end=f"{FINISHED}; print('Submitted application application_1_3')")
    )
    state = State()
    seen = []
    report, _ = run_try(
        lambda: yarn(deferrable=True),
        context(state),
        lambda deferred: seen.append((deferred.kwargs or {})["application"]),
    )
    assert report["state"] == "FINISHED"
    assert seen == [{"manager": "yarn", "external_id": "application_1_3", "conn_id": "spark_default"}]
    assert state["spark_job_id"] == "application_1_3"


def test_on_kubernetes_the_pod_is_only_created(operator: Make, submits: Any, connect: Connect) -> None:
    """What upstream would track is remembered, and the driver's events are followed."""
    connect(
        "spark_default",
        "spark",
        host="k8s://https://127.0.0.1:1",
        extra={"deploy-mode": "cluster", "namespace": "jobs"},
    )
    told = "spark.kubernetes.submission.waitAppCompletion=false"
    submits(
        f"import sys\nassert {told!r} in sys.argv\n" + DRIVER.format(end=f"{FINISHED}; print('pod name: job-1-driver')")
    )
    seen = []
    report, times = run_try(
        lambda: operator(deferrable=True),
        context(State()),
        lambda deferred: seen.append((deferred.kwargs or {})["application"]),
    )
    assert (report["state"], times) == ("FINISHED", 1)
    assert seen == [{"manager": "k8s", "external_id": "jobs:job-1-driver", "conn_id": "spark_default"}]


def test_a_pod_without_a_namespace_is_one_clear_error(operator: Make, submits: Any, connect: Connect) -> None:
    """It could not be found again."""
    submits("raise SystemExit(1)")
    connect("spark_default", "spark", host="k8s://https://127.0.0.1:1", extra={"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match=r"could not be found again.*Set 'namespace'"):
        operator(deferrable=True).execute(context(State()))


def test_an_application_that_fails_in_the_queue_is_told_by_the_cluster_manager(
    yarn: Make, submits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No driver claims the job; after a while YARN is asked, whose diagnostics say why."""
    monkeypatch.setattr(deferral, "_CLAIM_WITHIN", 0.1)
    submits("print('Submitted application application_1_4')")
    with pytest.raises(AirflowFailException, match="User application exited with status 2"):
        run_try(lambda: yarn(deferrable=True, recovery_options=QUICK), context(State()))


def test_what_yarn_says_of_a_lost_driver_is_told(yarn: Make, submits: Any) -> None:
    """The driver claimed the job and ended without a word: the error says what the cluster manager knows."""
    submits(DRIVER.format(end="print('Submitted application application_1_4')"))
    with pytest.raises(AirflowException, match=r"(?s)lost, attempt 1: .* stopped\. YARN app.* status 2\. A retry"):
        run_try(lambda: yarn(deferrable=True, recovery_options=QUICK), context(State()))


def test_a_driver_that_yarn_says_works_is_waited_for(
    yarn: Make, submits: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """The event store has lost sight of it, as when only the driver cannot reach it: YARN's word counts, to the end."""
    submits(DRIVER.format(end="print('Submitted application application_1_2')"))
    _, times = run_try(lambda: yarn(deferrable=True, recovery_options=QUICK), context(State()))
    assert times == 2
    told = capfd.readouterr().out
    assert "but it is still at work; waiting on" in told
    assert "the event store has no record of that" in told


def test_an_application_that_waits_too_long_is_given_up(
    yarn: Make, submits: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is waited for again and again, then ended, so that it can begin no more; the error says how to wait longer."""
    monkeypatch.setattr(deferral, "_CLAIM_WITHIN", 0.1)
    submits("print('Submitted application application_1_2')")
    make = lambda: yarn(deferrable=True, recovery_options=QUICK, start_timeout=1.5, durable=False)  # noqa: E731
    monkeypatch.setattr("airflow_provider.operators.deferral.Deferring._cluster_managers_word", lambda *_: "active")
    with pytest.raises(AirflowException, match=r"within 1.5 s of its submission.*'start_timeout'"):
        run_try(make, context(State()))
    newest = claims(tmp_path).newest()
    assert newest is not None
    assert newest.cancels


def test_a_resumption_of_release_one_is_understood() -> None:
    """Kept for ever: what a deferred task of the first release remembers. Later keys and lost ones harm nothing."""
    first = {
        "version": 1,
        "after": 2,
        "attached": True,
        "application": {"manager": "yarn", "external_id": "application_1_3", "conn_id": "spark_default"},
        "output": "/logs/driver.log",
        "output_read": 17,
        "host": "worker-7",
        "since": 1767225600.0,
        "waits": 3,
    }
    assert Deferral.from_kwargs(first).to_kwargs() == first
    assert Deferral.from_kwargs({**first, "later": 1}) == Deferral.from_kwargs(first)
    assert Deferral.from_kwargs({}) == Deferral()


def test_an_unreadable_store_is_told_and_the_driver_goes_on(job: Job, connect: Connect) -> None:
    """The connection has been removed meanwhile: one clear error, and no harm to the driver."""
    deferred = deferred_by(lambda: job.task(recovery_conn_id="spark_recovery_default").execute(context()))
    _, kwargs = deferred.trigger.serialize()
    trigger = type(deferred.trigger)(**{**kwargs, "recovery_conn_id": "gone"})
    payload = first_event(trigger)
    assert payload["kind"] == "unreadable"
    with pytest.raises(AirflowException, match=r"'gone' does not exist.* Its driver goes on; a retry attaches"):
        resume(job.task, deferred, payload, context())
    assert not process_is_gone(job.claim())


def test_airflows_setting_is_the_default(operator: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """``[operators] default_deferrable``; what the task says goes over it."""
    assert not operator().deferrable
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "true")
    assert operator().deferrable
    assert not operator(deferrable=False).deferrable


def test_disabled_recovery_is_never_deferred(operator: Make, submits: Any, tmp_path: Path) -> None:
    """There is nothing to follow."""
    submits(f"open({str(tmp_path / 'submitted')!r}, 'w')")
    assert operator(deferrable=True, recovery_options={"enabled": False}).execute(context()) is None
    assert (tmp_path / "submitted").exists()
