"""Every cluster manager and deploy mode: what is refused, built, attached to, waited for, submitted, and ended.

No YARN and no Kubernetes is here: small servers answer in their place, and a small program stands for ``spark-submit``.
Standalone and local are run for real, in ``tests/cluster`` and ``test_operator.py``.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowTaskTimeout

from airflow_provider.airflow import order, retries
from airflow_provider.airflow.cluster_managers import job_mark, manager, require_deployment
from airflow_provider.core import events as ev
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.job import JobId
from airflow_provider.core.lease import Lease
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.hooks.cluster_applications import (
    Application,
    application_of,
    end_remembered,
    remembered_application,
)
from airflow_provider.hooks.spark_recovery import NextAttempt, SparkRecoveryHook
from airflow_provider.operators.spark_recovery import SparkRecoveryOperator
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.uris import open_store
from tests.airflow_side.executing import (
    DRIVER,
    FINISHED,
    JOB,
    SERIES,
    Connect,
    State,
    execute,
    needs_durable,
    operator,
    submits,
)
from tests.support.managers import Kubernetes, ResourceManager, kubernetes, resource_manager
from tests.support.waiting import wait_until

__all__ = ["operator", "submits"]  # fixtures

Make = Callable[..., SparkRecoveryOperator]
YARN_CLUSTER = {"host": "yarn", "extra": {"deploy-mode": "cluster"}}
K8S_CLUSTER = {"host": "k8s://https://k8s:443", "extra": {"deploy-mode": "cluster", "namespace": "etl"}}
SUBMITTED = {"yarn": "application_9_9", "k8s": "etl:job-9-driver"}
OTHER = JobId.of_task_instance("dag", "run", "another task")
REMEMBERED = {"yarn": "application_1_1", "k8s": "etl:job-1-driver"}
PHASES = {"ACTIVE": "Running", "SUCCEEDED": "Succeeded", "FAILED": "Failed"}
STATES = {
    "ACTIVE": ("ACCEPTED", "UNDEFINED", ""),
    "SUCCEEDED": ("FINISHED", "SUCCEEDED", ""),
    "FAILED": ("FAILED", "FAILED", ""),
}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/store")


# -- what is refused, and what is built -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "kind"),
    [
        ("local", "local"),
        ("local[4]", "local"),
        ("spark://a:7077,b:7077", "standalone"),
        ("yarn", "yarn"),
        ("k8s://https://host:6443", "k8s"),
        ("mesos://host", ""),
    ],
)
def test_a_master_url_names_its_manager(master: str, kind: str) -> None:
    """The kind of cluster is read off the URL that Spark is given."""
    assert manager(master) == kind


@pytest.mark.parametrize("master", ["spark://host:7077", "local[2]"])
def test_cluster_mode_is_refused_where_spark_has_none_for_python(master: str) -> None:
    """On a standalone cluster and locally, before anything is submitted, with what to do instead."""
    require_deployment(master, cluster_mode=False)
    with pytest.raises(ConfigurationError, match=r"deploy mode to 'client'"):
        require_deployment(master, cluster_mode=True)
    for elsewhere in ("yarn", "k8s://https://host"):
        require_deployment(elsewhere, cluster_mode=True)


@pytest.mark.integration
@pytest.mark.process
def test_spark_itself_refuses_it(tmp_path: Path) -> None:
    """The installed ``spark-submit`` says so, too. Once it runs such drivers, this fails and the refusal may go."""
    script = tmp_path / "job.py"
    script.write_text("")
    program = Path(sys.executable).with_name("spark-submit")
    command = [str(program), "--master", "spark://127.0.0.1:1", "--deploy-mode", "cluster", str(script)]
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"  # spark-submit asks a python for its Spark
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode != 0
    assert "not supported for python applications on standalone clusters" in done.stderr


@pytest.mark.parametrize(
    ("spark", "parameters", "says"),
    [
        ({"host": "spark://host:7077", "extra": {"deploy-mode": "cluster"}}, {}, "standalone cluster .spark://host"),
        ({"host": "local[2]"}, {"conf": {"spark.submit.deployMode": "cluster"}}, "'local.2.' has no cluster"),
        pytest.param(YARN_CLUSTER, {}, "yarn_track_via_rm_api=True.*or set durable=False", marks=needs_durable),
    ],
)
def test_what_cannot_work_fails_without_retries(
    operator: Make,
    submits: Callable[[str], None],
    connect: Connect,
    tmp_path: Path,
    spark: dict[str, Any],
    parameters: dict[str, Any],
    says: str,
) -> None:
    """Nothing is submitted, and no retry is spent on it."""
    submits(f"open({str(tmp_path / 'submitted')!r}, 'w')")
    connect("spark_default", "spark", **spark)
    with pytest.raises(AirflowFailException, match=says):
        execute(operator(**parameters), State())
    assert not (tmp_path / "submitted").exists()


def built(hook: SparkRecoveryHook, script: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of an attempt."""
    commands: list[list[str]] = []
    build = hook._build_spark_submit_command

    def record(application: str) -> list[str]:
        commands.append(build(application))
        return [sys.executable, "-c", "print('Exit code: 0')"]

    monkeypatch.setattr(hook, "_build_spark_submit_command", record)
    hook.prepare(NextAttempt(JOB))
    hook.submit(script)
    return commands[0]


@pytest.mark.parametrize(
    ("spark", "conf", "in_command", "driver_here"),
    [
        ({"host": "local[2]"}, {}, ["--master local[2]"], True),
        ({"host": "spark://host:7077"}, {}, ["--master spark://host:7077"], True),
        ({"host": "yarn"}, {}, ["--master yarn"], True),
        ({"host": "k8s://https://k8s:443"}, {}, ["--master k8s://https://k8s:443"], True),
        (YARN_CLUSTER, {}, ["--deploy-mode cluster", "spark.yarn.appMasterEnv.PYTHONHASHSEED=0"], False),
        (K8S_CLUSTER, {}, ["--deploy-mode cluster", "spark.kubernetes.driverEnv.PYTHONHASHSEED=0", "etl"], False),
        (
            {"host": "k8s://https://k8s:443"},
            {"spark.submit.deployMode": "cluster"},
            ["--deploy-mode cluster", "spark.kubernetes.driverEnv.PYTHONHASHSEED=0"],
            False,
        ),
    ],
)
def test_the_command_of_each_deploy_mode(
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: dict[str, Any],
    conf: dict[str, Any],
    in_command: list[str],
    driver_here: bool,
) -> None:
    """A driver on this machine gets keys and hash seed by its environment; elsewhere no key travels, the seed does."""
    script = tmp_path / "job.py"
    script.touch()
    connect("spark_default", "spark", **spark)
    connect("aws_default", "aws", login="AKIDEXAMPLE", password="very/secret/key", extra={"region_name": "eu-west-1"})
    recovery = {"event_store": "s3://bucket/p", "aws_conn_id": "aws_default"}
    connect("spark_recovery_default", "spark_recovery", extra=recovery)
    hook = SparkRecoveryHook(conf=conf)
    command = built(hook, str(script), monkeypatch)
    line = " ".join(command)
    assert [part for part in in_command if part not in line] == []
    assert "airflow_provider_driver.zip" in command[command.index("--py-files") + 1]
    assert ("--files" in command) is not driver_here, "the script is shipped where the driver is elsewhere"
    environment = hook._env or {}
    assert environment.get("SPARK_RECOVERY_AWS_SECRET_ACCESS_KEY") == ("very/secret/key" if driver_here else None)
    assert environment.get("PYTHONHASHSEED") == ("0" if driver_here else None)
    assert "AWS_" not in line
    assert "secret" not in line
    assert not any("AWS_" in name for name in hook._conf)


def conf_of(command: list[str], name: str) -> list[str]:
    """What a command line says of one setting."""
    said = [value for option, value in itertools.pairwise(command) if option == "--conf"]
    return [value.partition("=")[2] for value in said if value.startswith(f"{name}=")]


@pytest.mark.parametrize(
    ("given", "defaults", "properties", "told"),
    [
        ({}, "", "", ""),
        ({"spark.yarn.tags": "team-a, nightly"}, "spark.yarn.tags unseen", "", "team-a,nightly,"),
        ({}, "# none\nspark.yarn.tags   team-b\nspark.yarn.tagsx=x", "", "team-b,"),
        ({}, "spark.yarn.tags=team-b", "spark.yarn.tags: team-c", "team-c,"),
    ],
)
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_an_application_on_yarn_is_tagged_as_its_jobs(
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    given: dict[str, str],
    defaults: str,
    properties: str,
    told: str,
) -> None:
    """Beside the tags of the operator, else of the properties file, else of Spark's defaults on this machine."""
    script = tmp_path / "job.py"
    script.touch()
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    (tmp_path / "more.conf").write_text(properties)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": mode})
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p"})
    hook = SparkRecoveryHook(conf=given, properties_file=str(tmp_path / "more.conf") if properties else None)
    command = built(hook, str(script), monkeypatch)
    assert conf_of(command, "spark.yarn.tags") == [told + job_mark("s3://bucket/p", JOB)]
    assert not [part for part in command if "spark.kubernetes" in part and "label" in part]


def test_a_driver_pod_is_labelled_as_its_jobs(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the labels that were given; Kubernetes takes the label."""
    script = tmp_path / "job.py"
    script.touch()
    connect("spark_default", "spark", **K8S_CLUSTER)
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p"})
    hook = SparkRecoveryHook(conf={"spark.kubernetes.driver.label.team": "a"})
    command = built(hook, str(script), monkeypatch)
    assert conf_of(command, "spark.kubernetes.driver.label.team") == ["a"]
    (label,) = conf_of(command, "spark.kubernetes.driver.label.spark-recovery-job")
    assert label == job_mark("s3://bucket/p", JOB)
    assert re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])", label)


def test_a_mark_is_of_one_job_in_one_store() -> None:
    """And tells nothing of either."""
    marks = [job_mark("s3://b/p", JOB), job_mark("s3://b/q", JOB), job_mark("s3://b/p", OTHER)]
    assert len(set(marks)) == 3
    assert job_mark("s3://b/p/", JobId.parse(str(JOB))) == marks[0]
    assert not [mark for mark in marks if "task" in mark or "b/p" in mark]


def test_a_pod_that_failed_is_no_success_though_only_the_conf_says_cluster(
    connect: Connect, operator: Make, submits: Callable[[str], None]
) -> None:
    """``spark-submit`` ends with 0 whatever became of the driver pod; its exit code is read in the output."""
    connect("spark_default", "spark", host="k8s://https://k8s:443")
    submits("print('Exit code: 137')")
    with pytest.raises(AirflowException, match="137"):
        execute(operator(conf={"spark.submit.deployMode": "cluster"}))


# -- who follows: our attach, or upstream's durable mode --------------------------------------------------------------


class Manager:
    """A cluster manager with one application, which upstream's durable mode may remember, and whose that is."""

    def __init__(self, kind: str, server: ResourceManager | Kubernetes, state: str, mark: str = "") -> None:
        self.kind, self.server = kind, server
        name = REMEMBERED[kind].replace(":", "/")
        server.marks[name] = f"team-a,{mark}" if kind == "yarn" else mark
        if isinstance(server, ResourceManager):
            server.applications |= {REMEMBERED[kind]: STATES[state], SUBMITTED[kind]: STATES["SUCCEEDED"]}
        else:
            server.pods |= {"etl/job-1-driver": PHASES[state], "etl/job-9-driver": "Succeeded"}

    @property
    def ended(self) -> list[str]:
        if isinstance(self.server, ResourceManager):
            return self.server.killed
        return [name.replace("/", ":") for name in self.server.deleted]


@pytest.fixture(params=["yarn", "k8s"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(
    kind: str, operator: Make, tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ResourceManager | Kubernetes]:
    """A manager, and the Spark connection to it in the place of the one that ``operator`` has made."""
    if kind == "yarn":
        with resource_manager({}) as yarn:
            extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
            connect("spark_default", "spark", host="yarn", extra=extra)
            yield yarn
        return
    with kubernetes(tmp_path, {}) as k8s:
        for name, value in k8s.environment.items():
            monkeypatch.setenv(name, value)
        connect("spark_default", "spark", **K8S_CLUSTER)
        yield k8s


@pytest.fixture
def task(kind: str, server: ResourceManager | Kubernetes, operator: Make, submits: Callable[[str], None]) -> Make:
    """Operators in cluster mode, tracked by upstream's durable mode, whose driver succeeds at once."""
    said = {"yarn": "Submitted application application_9_9", "k8s": "submission ID spark:job-9-driver"}[kind]
    submits(DRIVER.format(end=f"{FINISHED}; print({said!r})"))
    tracking = {"yarn": {"yarn_track_via_rm_api": True}, "k8s": {"track_driver_via_k8s_api": True}}[kind]
    options = {"previous_worker_recovery_timeout": 0.3}
    return lambda **more: operator(**{"recovery_options": options, **tracking, **more})


def mark_in(store: ObjectStore) -> str:
    """What the cluster manager is told at the submission of a try."""
    return job_mark(store.uri, JOB)


def attempt(store: ObjectStore, *events: Callable[[int], ev.JobEvent], host: str = "elsewhere") -> Heartbeat:
    """Claim the job and record events, as a driver on another machine does; return its heartbeat, not yet beating."""
    claim = Claims(store, JOB.prefix).claim(Lease.lasting(0.3))
    key = f"{JOB.prefix}/claims/{claim.epoch:08d}.json"
    store.put(key, json.dumps({**json.loads(store.get(key)), "host": host}).encode())
    options = RecoveryOptions(write_buffer_flush_interval=0.01)
    writer = JobEventWriter(store, JOB.prefix, claim, options, on_fenced=lambda _: None, on_broken=lambda _: None)

    def first(_: ExecutionGraph) -> ev.AttemptStarted:
        return ev.AttemptStarted(epoch=claim.epoch, series=SERIES)

    writer.begin(first)
    for event in events:
        writer.append(event(claim.epoch))
    assert writer.flush()
    writer.close()
    return Heartbeat(store, JOB.prefix, claim, 0.02, on_fenced=lambda _: None)


def finished(epoch: int) -> ev.JobEvent:
    return ev.JobFinished(epoch=epoch)


def failed(epoch: int) -> ev.JobEvent:
    return ev.JobFailed(epoch=epoch, error="ValueError: bad")


@pytest.mark.few(6)
@needs_durable
@pytest.mark.parametrize(
    ("history", "application", "resume", "submitted", "ended"),
    [
        # Nobody has claimed the job: what upstream remembers waits to start, or belongs to something else.
        ((), None, "auto", True, False),
        ((), "ACTIVE", "auto", False, False),
        ((), "SUCCEEDED", "auto", True, False),
        ((), "FAILED", "auto", True, False),
        # The last attempt is lost: upstream's word on the application is taken where it lives or has succeeded.
        (("lost",), None, "auto", True, False),
        (("lost",), "ACTIVE", "auto", False, False),
        (("lost",), "SUCCEEDED", "auto", False, False),
        (("lost",), "FAILED", "auto", True, False),
        # It failed by itself.
        (("failed",), "FAILED", "auto", True, False),
        # It finished unseen: nothing is asked of anybody.
        (("finished",), "SUCCEEDED", "auto", False, False),
        (("finished",), "FAILED", "auto", False, False),
        # Told to start afresh: an application that waits is ended, one that has succeeded is no reason not to run.
        (("lost",), "ACTIVE", "never", True, True),
        (("finished",), "SUCCEEDED", "never", True, False),
    ],
)
def test_attach_and_durable_do_not_fight(
    kind: str,
    server: ResourceManager | Kubernetes,
    task: Make,
    store: ObjectStore,
    history: tuple[str, ...],
    application: str | None,
    resume: str,
    submitted: bool,
    ended: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the two remember: at most one driver runs, nothing done is done again, nothing asked for is left out."""
    monkeypatch.setattr("time.sleep", nap)
    ends = {"failed": failed, "finished": finished}
    for word in history:
        attempt(store, *([ends[word]] if word in ends else []))
    cluster = Manager(kind, server, application or "FAILED", mark_in(store))
    state = State(spark_job_id=REMEMBERED[kind]) if application else State()
    execute(task(resume=resume), state)
    newest = Claims(store, JOB.prefix).newest()
    assert (newest.epoch if newest else 0) == len(history) + submitted
    assert (REMEMBERED[kind] in cluster.ended) is (ended or (kind == "k8s" and application == "ACTIVE"))
    if submitted:
        assert state["spark_job_id"] == SUBMITTED[kind]


@needs_durable
def test_without_recovery_durable_mode_is_upstreams(
    kind: str, server: ResourceManager | Kubernetes, task: Make
) -> None:
    """``enabled=False`` leaves nothing but ``SparkSubmitOperator``: what has succeeded is not submitted again."""
    Manager(kind, server, "SUCCEEDED")
    state = State(spark_job_id=REMEMBERED[kind])
    execute(task(recovery_options={"enabled": False}), state)
    assert state["spark_job_id"] == REMEMBERED[kind]


_sleep = time.sleep


def nap(seconds: float) -> None:
    """Upstream waits 10 s for YARN and 20 s for Kubernetes between two looks; here they come at once."""
    _sleep(min(seconds, 0.05))


@pytest.mark.few(1)
def test_a_living_driver_is_attached_to_whatever_upstream_remembers(
    kind: str,
    server: ResourceManager | Kubernetes,
    task: Make,
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A beating heartbeat comes first: upstream is asked nothing, the manager sees no request, one attempt is there."""
    monkeypatch.setattr(retries, "__version__", "3.3.0")
    heartbeat = attempt(store)
    heartbeat.start()
    state = State(spark_job_id="application_0_0")  # unknown to the manager: a look would fail
    ends = threading.Timer(1.0, heartbeat.stop, ("FINISHED",))
    ends.start()
    try:
        execute(task(), state)
    finally:
        ends.join()
    assert [claim.epoch for claim in [Claims(store, JOB.prefix).newest()] if claim] == [1]


@pytest.mark.few(1)
@needs_durable
def test_a_living_driver_that_is_older_than_the_clearing_is_followed_by_another(
    kind: str, server: ResourceManager | Kubernetes, task: Make, store: ObjectStore, tmp_path: Path
) -> None:
    """It is never doubled; when it has finished, the try goes on from what it has left, with the inputs as they are."""
    Manager(kind, server, "FAILED")
    heartbeat = attempt(store)
    heartbeat.start()
    ends = threading.Timer(1.0, heartbeat.stop, ("FINISHED",))
    ends.start()
    after = tmp_path / "after"
    try:
        report = execute(task(post_submit_commands=[f"sh -c 'ls {tmp_path} >> {after}'"]), State(), cleared=1)
    finally:
        ends.join()
    assert [attempt["fresh"] for attempt in report["attempts"]] == [False, False]
    # They may end what the other driver needs.
    assert after.read_text().split().count("after") == 1, "commands that follow the job run once, at its end"


@pytest.mark.few(1)
@needs_durable
@pytest.mark.parametrize("events", [(finished,), ()])
def test_a_success_that_nobody_saw_does_not_outlive_the_clearing(
    kind: str,
    server: ResourceManager | Kubernetes,
    task: Make,
    store: ObjectStore,
    events: tuple[Callable[[int], ev.JobEvent], ...],
) -> None:
    """Whether the driver has recorded it or only upstream knows: what it has read may be another by now."""
    attempt(store, *events)
    Manager(kind, server, "SUCCEEDED")
    state = State(spark_job_id=REMEMBERED[kind], k8s_driver_status="Succeeded")
    report = execute(task(), state, cleared=1)
    assert [attempt["fresh"] for attempt in report["attempts"]] == [False, False]
    assert state["spark_job_id"] == SUBMITTED[kind]


@pytest.mark.few(1)
@needs_durable
def test_a_success_that_only_upstream_knows_does_not_outlive_the_clearing(
    kind: str, server: ResourceManager | Kubernetes, task: Make, store: ObjectStore
) -> None:
    """The driver could not record its end: the try succeeds by upstream's word, and the task runs again if cleared."""
    attempt(store)
    Manager(kind, server, "SUCCEEDED")
    state = State(spark_job_id=REMEMBERED[kind])
    execute(task(), state)
    assert "spark_job_id" not in state
    execute(task(), state)
    newest = Claims(store, JOB.prefix).newest()
    assert newest is not None
    assert newest.epoch == 2


# -- ending an application --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "cluster", "host", "recorded", "remembered", "found"),
    [
        ("local[2]", False, "h", "local-1", "", None),
        ("spark://host:7077", False, "h", "app-1", "", None),
        ("yarn", True, "h", "application_2_1", "application_1_1", Application("yarn", "application_2_1")),
        ("yarn", True, "h", "", "application_1_1", Application("yarn", "application_1_1")),
        ("yarn", False, "h", "application_2_1", "", Application("yarn", "application_2_1")),
        ("yarn", True, "h", "", "", None),
        ("k8s://x", True, "a-driver", "spark-1", "etl:a-driver", Application("k8s", "a-driver", "etl")),
        ("k8s://x", True, "a-dri", "spark-1", "etl:a-driver", Application("k8s", "a-driver", "etl")),
        ("k8s://x", True, "b-driver", "", "etl:a-driver", Application("k8s", "b-driver", "ns")),
        ("k8s://x", True, "", "", "etl:a-driver", None),
        ("k8s://x", False, "worker-pod", "spark-1", "", None),
        # What is no name of an application never becomes an argument or a part of an address.
        ("yarn", True, "h", "application_2_1/../../x", "application_1_1", Application("yarn", "application_1_1")),
        ("yarn", True, "h", "application_2_1 -help", "", None),
        ("yarn", True, "h", "application_2_1\n", "application_", None),
        ("yarn", True, "h", "application_\N{ARABIC-INDIC DIGIT TWO}_1", "", None),
        ("k8s://x", True, "../secrets/s", "", "", None),
        ("k8s://x", True, "b_driver", "", "", None),
        ("k8s://x", True, "b" * 254, "", "", None),
        ("k8s://x", True, "b-driver", "", "../x:b-driver", Application("k8s", "b-driver", "ns")),
    ],
)
def test_which_application_an_attempt_is(
    master: str, cluster: bool, host: str, recorded: str, remembered: str, found: Application | None
) -> None:
    """What the driver recorded, then what upstream remembers, then the pod that claimed the job; never another one."""
    said = {"namespace": "ns", "host": host, "recorded": recorded, "remembered": remembered}
    assert application_of(master, cluster_mode=cluster, **said) == found


def test_what_upstream_remembers_of_another_manager_is_nothing() -> None:
    """A task that has moved from YARN to Kubernetes does not end a pod by a YARN application's name."""
    assert remembered_application("k8s://x", "application_1_1") is None
    assert remembered_application("yarn", "etl:a-driver") is None
    assert remembered_application("spark://host:7077", "driver-1") is None


@contextmanager
def followed(task: SparkRecoveryOperator, heartbeat: Heartbeat, state: State) -> Iterator[list[BaseException]]:
    """Run a try that attaches; give its errors when it has ended."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            execute(task, state)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            errors.append(error)

    heartbeat.start()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: task._end_attached is not None, "the try to attach")
        yield errors
    finally:
        thread.join()
        heartbeat.stop("FAILED")


@needs_durable
def test_marking_failed_ends_an_application_that_another_worker_submitted(
    kind: str,
    server: ResourceManager | Kubernetes,
    task: Make,
    store: ObjectStore,
) -> None:
    """A try that has attached to a driver on the cluster ends it there; its name is upstream's or the driver's own."""
    cluster = Manager(kind, server, "ACTIVE", mark_in(store))
    following = task()
    with followed(following, attempt(store, host="job-1-driver"), State(spark_job_id=REMEMBERED[kind])) as errors:
        following.on_kill()
    assert cluster.ended == [REMEMBERED[kind]]
    assert "ended while it followed" in str(errors[0])


@needs_durable
@pytest.mark.parametrize("kind", ["yarn"], indirect=True)
def test_a_time_out_ends_an_application_that_another_worker_submitted(
    server: ResourceManager, task: Make, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``execution_timeout`` breaks the try that follows it, and only then has Airflow the application ended."""
    cluster = Manager("yarn", server, "ACTIVE", mark_in(store))
    following, heartbeat = task(), attempt(store)

    def time_out(_: float) -> None:
        raise AirflowTaskTimeout

    clock = SimpleNamespace(sleep=time_out, monotonic=time.monotonic)
    monkeypatch.setattr("airflow_provider.airflow.supervisor.time", clock)
    heartbeat.start()
    try:
        with pytest.raises(AirflowTaskTimeout):
            execute(following, State(spark_job_id=REMEMBERED["yarn"]))
        following.on_kill()
    finally:
        heartbeat.stop("FAILED")
    assert cluster.ended == [REMEMBERED["yarn"]]


@needs_durable
@pytest.mark.parametrize("kind", ["yarn"], indirect=True)
def test_marking_failed_while_a_try_looks_ends_what_it_finds_and_submits_nothing(
    server: ResourceManager, task: Make, store: ObjectStore
) -> None:
    """Airflow lets a try that is ended go on for seconds: it may find the driver alive then, or that there is none."""
    cluster = Manager("yarn", server, "ACTIVE", mark_in(store))
    ended = task()
    ended.on_kill()
    with pytest.raises(AirflowException, match="was ended"):
        execute(ended, State())
    assert Claims(store, JOB.prefix).newest() is None
    heartbeat = attempt(store)
    heartbeat.start()
    try:
        with pytest.raises(AirflowException, match="was ended"):
            execute(ended, State(spark_job_id=REMEMBERED["yarn"]))
    finally:
        heartbeat.stop("FAILED")
    assert cluster.ended == [REMEMBERED["yarn"]]


@pytest.mark.parametrize("how", ["followed", "marked failed", "unseen"])
def test_what_is_to_run_after_the_job_runs_for_one_that_another_try_submitted(
    operator: Make, store: ObjectStore, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``post_submit_commands`` may end a sidecar of this try's pod, which would otherwise go on for ever."""
    monkeypatch.setattr(retries, "__version__", "3.3.0")
    task = operator(post_submit_commands=[f"touch {tmp_path}/after"])
    if how == "unseen":
        attempt(store, finished).stop("FINISHED")
        assert execute(task)["state"] == "FINISHED"
    else:
        heartbeat = attempt(store)
        with followed(task, heartbeat, State()):
            assert not (tmp_path / "after").exists()
            task.on_kill() if how == "marked failed" else heartbeat.stop("FAILED")
    assert (tmp_path / "after").exists()


@needs_durable
@pytest.mark.parametrize("mark", ["", job_mark("file:///elsewhere", JOB), job_mark("file:///elsewhere", OTHER)])
def test_an_application_of_somebody_else_is_left_alone(
    kind: str,
    server: ResourceManager | Kubernetes,
    task: Make,
    store: ObjectStore,
    mark: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whatever the store says: what the cluster manager does not know for this job's is named in a warning."""
    cluster = Manager(kind, server, "ACTIVE", mark)
    following = task()
    with followed(following, attempt(store, host="job-1-driver"), State(spark_job_id=REMEMBERED[kind])):
        following.on_kill()
    assert cluster.ended == []
    (told,) = [line for line in capfd.readouterr().out.splitlines() if "was not ended" in line]
    assert REMEMBERED[kind] in told
    assert "does not confirm that it belongs to this job" in told
    assert {"yarn": "yarn application -kill", "k8s": "kubectl delete pod"}[kind] in told
    newest = Claims(store, JOB.prefix).newest()
    assert newest is not None
    assert newest.cancels, "its driver is fenced all the same"


def test_a_deferred_task_leaves_somebody_elses_application_alone(
    kind: str, server: ResourceManager | Kubernetes, task: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The triggerer asks the same question before it ends what was remembered."""
    log, mark = logging.getLogger("test"), job_mark("file:///store", JOB)
    cluster = Manager(kind, server, "ACTIVE", job_mark("file:///store", OTHER))
    end_remembered(order.Application(kind, REMEMBERED[kind], "spark_default"), mark, log)
    assert cluster.ended == []
    assert "was not ended" in caplog.text
    cluster = Manager(kind, server, "ACTIVE", mark)
    end_remembered(order.Application(kind, REMEMBERED[kind], "spark_default"), mark, log)
    assert cluster.ended == [REMEMBERED[kind]]


@pytest.mark.parametrize("kind", ["k8s"], indirect=True)
def test_the_pod_that_was_looked_at_is_the_pod_that_is_deleted(
    server: Kubernetes, task: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Another pod that has taken the name meanwhile stays: the request names the pod's uid."""
    mark = job_mark("file:///store", JOB)
    cluster = Manager("k8s", server, "ACTIVE", mark)
    server.replaced_when_seen = True
    end_remembered(order.Application("k8s", REMEMBERED["k8s"], "spark_default"), mark, logging.getLogger("test"))
    assert cluster.ended == []
    assert "could not be ended" in caplog.text


@needs_durable
@pytest.mark.parametrize("kind", ["yarn"], indirect=True)
def test_the_drivers_own_word_on_its_application_is_enough(
    server: ResourceManager, task: Make, store: ObjectStore
) -> None:
    """Without durable mode the application is known by the id that the driver has recorded."""
    Manager("yarn", server, "ACTIVE", mark_in(store))

    def started(epoch: int) -> ev.JobEvent:
        return ev.SparkApplicationStarted(epoch=epoch, application_id="application_1_1", ui_url="")

    following = task(durable=False)
    with followed(following, attempt(store, started), State()):
        end = following._end_attached
        assert end is not None
        wait_until(lambda: end() or server.killed, "the application to be ended")
        following.on_kill()
    assert set(server.killed) == {"application_1_1"}


@needs_durable
@pytest.mark.parametrize("kind", ["yarn"], indirect=True)
def test_an_application_that_upstream_has_found_again_can_be_ended(
    server: ResourceManager, task: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream forgets to note the id of an application that it reconnects to; marked failed, it would go on."""
    server.applications["application_1_1"] = ("RUNNING", "UNDEFINED", "")
    waiting, mine, sleep = task(), threading.get_ident(), time.sleep

    def kill_at_the_first_look(seconds: float) -> None:
        if threading.get_ident() != mine:  # a thread that another test left behind
            sleep(seconds)
            return
        waiting.on_kill()
        assert server.killed

    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.time.sleep", kill_at_the_first_look)
    with pytest.raises(RuntimeError, match="KILLED"):
        execute(waiting, State(spark_job_id="application_1_1"))
    assert server.killed == ["application_1_1"]


@needs_durable
@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("kind", ["yarn"], indirect=True)
def test_without_an_address_yarn_is_told_by_its_command_line(
    ours: bool,
    server: ResourceManager,
    connect: Connect,
    operator: Make,
    store: ObjectStore,
    tmp_path: Path,
    submits: Any,
) -> None:
    """No ResourceManager address in the connection: ``yarn application`` lists the job's own, and ends one."""
    connect("spark_default", "spark", **YARN_CLUSTER)
    program = Path(os.environ["PATH"].split(":")[0]) / "yarn"
    program.write_text(
        f"#!/bin/sh\necho \"$@\" >> {tmp_path}/told\ncase $2 in -list) printf '%30s\\tjob\\n' application_7_7;; esac\n"
        if ours
        else f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n'
    )
    program.chmod(0o755)
    following = operator(durable=False)
    heartbeat = attempt(store, lambda epoch: ev.SparkApplicationStarted(epoch=epoch, application_id="application_7_7"))
    with followed(following, heartbeat, State()):
        end = following._end_attached
        assert end is not None
        wait_until(lambda: end() or (tmp_path / "told").exists(), "the application to be known")
        following.on_kill()
    told = (tmp_path / "told").read_text().splitlines()
    assert told[0] == f"application -list -appTags {mark_in(store)}"
    assert set(told[1:]) - {told[0]} == ({"application -kill application_7_7"} if ours else set())


def test_the_context_of_older_airflow_has_no_memory(operator: Make, submits: Callable[[str], None]) -> None:
    """Before 3.3 there is no task state store, and nothing of durable mode is asked."""
    submits(DRIVER.format(end=FINISHED))
    task = operator()
    assert task._remembered_id({"ti": SimpleNamespace()}) == ""  # type: ignore[typeddict-item]
    assert execute(task)["state"] == "FINISHED"
