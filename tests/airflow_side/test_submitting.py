"""What is handed to ``spark-submit``, and what never is."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import mask_secret
from airflow.sdk._shared.secrets_masker import reset_secrets_masker

from airflow_provider.airflow.driver_bundle import build_bundle
from airflow_provider.airflow.masking import masked, secret_parts
from airflow_provider.airflow.order import UNREADABLE, Outcome
from airflow_provider.airflow.recovery_connection import RecoveryConnection
from airflow_provider.airflow.supervisor import JobSupervisor
from airflow_provider.airflow.user_application import ShippedApplication, ship
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.core.options import INTEGRITY_SECRET, RecoveryOptions
from airflow_provider.core.report import build_report
from airflow_provider.core.run_request import EXIT_CONFIGURATION, RunRequest, parse_run_arguments
from airflow_provider.hooks.spark_recovery import NextAttempt, SparkRecoveryHook
from airflow_provider.job.job_master import JobMaster
from airflow_provider.operators.conclusion import succeed
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.sealing import SealedStore
from tests.airflow_side.executing import Connect, needs_lists

ODD_JOB = JobId.of_task_instance("dag ü", "scheduled__2026-01-01T00:00:00+00:00/é", "gruppe.aufgabe", 7)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text("print('hello')\n")
    return path


def submitted(hook: SparkRecoveryHook, script: str, monkeypatch: pytest.MonkeyPatch, **attempt: Any) -> list[str]:
    """Let the hook submit to a process that ends at once; return the command line it built."""
    commands: list[list[str]] = []
    build = hook._build_spark_submit_command

    def record(application: str) -> list[str]:
        commands.append(build(application))
        return [sys.executable, "-c", ""]

    monkeypatch.setattr(hook, "_build_spark_submit_command", record)
    hook.prepare(NextAttempt(ODD_JOB, **attempt))
    hook.submit(script)
    return commands[0]


def test_the_script_is_wrapped_and_all_parameters_stay(
    connect: Connect, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream's parameters are passed on; the runner gets the request, and the script its arguments."""
    connect("spark_default", "spark", host="local[2]")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/s"})
    hook = SparkRecoveryHook(
        conf={"spark.executor.memory": "1g"},
        py_files="helpers.py",
        files="data.csv",
        application_args=["--date", "2026-01-01", 3],
        name="nightly",
    )
    command = submitted(hook, str(script), monkeypatch, fresh="cleared", previous_lost=2)
    runner = next(index for index, text in enumerate(command) if text.endswith("spark_recovery_runner.py"))
    request = parse_run_arguments(command[runner + 1 :])
    assert request == RunRequest(
        event_store=f"file://{tmp_path}/s",
        job=ODD_JOB,
        application=str(script),
        arguments=("--date", "2026-01-01", "3"),
        fresh="cleared",
        previous_lost=2,
        supervised=True,
    )
    package, own = command[command.index("--py-files") + 1].split(",")
    assert package.endswith(".zip")
    assert own == "helpers.py"
    assert command[command.index("--files") + 1] == "data.csv"
    assert command[command.index("--name") + 1] == "nightly"
    assert "spark.executor.memory=1g" in command


@pytest.mark.parametrize("where", ["conf", "properties_file", "spark-defaults.conf"])
@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_files_that_only_sparks_conf_names_go_along(
    connect: Connect, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, deploy_mode: str
) -> None:
    """A flag of spark-submit replaces the property, so what is shipped in addition would take their place."""
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": deploy_mode})
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/s"})
    conf = {"spark.submit.pyFiles": "helpers.zip", "spark.files": "data.csv"}
    file = tmp_path / "spark-defaults.conf"
    lines = ["spark.submit.pyFiles = \\", "  helpers.zip", "spark.files data.csv", "spark.archives=", "spark.x 1"]
    file.write_text("\n".join(lines))
    given: dict[str, dict[str, Any]] = {
        "conf": {"conf": conf},
        "properties_file": {"properties_file": str(file)},
        "spark-defaults.conf": {"env_vars": {"SPARK_CONF_DIR": str(tmp_path)}},
    }
    hook = SparkRecoveryHook(**given[where])
    command = submitted(hook, str(script), monkeypatch)
    assert command[command.index("--py-files") + 1].split(",")[1:] == ["helpers.zip"]
    assert hook._property("spark.archives") == "", "the next line is another property"
    if deploy_mode == "cluster":
        assert command[command.index("--files") + 1] == f"data.csv,{script}"
    else:
        assert "--files" not in command, "nothing is shipped in addition: the property stands"


def test_credentials_reach_the_driver_through_its_environment_only(
    connect: Connect, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of the AWS connection are in the environment of spark-submit, and not on its command line."""
    connect("spark_default", "spark", host="local[2]")
    connect(
        "aws_default",
        "aws",
        login="AKIDEXAMPLE",
        password="very/secret/key",
        extra={"region_name": "eu-central-1", "endpoint_url": "http://127.0.0.1:9"},
    )
    connect(
        "spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p", "aws_conn_id": "aws_default"}
    )
    hook = SparkRecoveryHook(env_vars={"OWN": "value"})
    command = submitted(hook, str(script), monkeypatch)
    assert "secret" not in " ".join(command)
    assert "secret" not in repr(hook._conf)
    assert hook._env is not None
    assert hook._env["SPARK_RECOVERY_AWS_SECRET_ACCESS_KEY"] == "very/secret/key"
    assert hook._env["SPARK_RECOVERY_AWS_ACCESS_KEY_ID"] == "AKIDEXAMPLE"
    assert not [name for name in hook._env if name.startswith("AWS_")], "Spark would take them for the job's own"
    assert hook._env["OWN"] == "value"
    assert hook._env["PYTHONHASHSEED"] == "0"
    request = parse_run_arguments(command[[text.endswith("_runner.py") for text in command].index(True) + 1 :])
    assert (request.storage.region, request.storage.endpoint_url) == ("eu-central-1", "http://127.0.0.1:9")


SECRETS = "5ea1" * 16 + ", " + "01d5" * 16


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_integrity_secret_reaches_the_driver_through_its_environment_only(
    connect: Connect, script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """Not by command line, conf, XCom or a setting that is shown; a driver elsewhere has to bring its own."""
    masked = list[str]()
    monkeypatch.setattr("airflow_provider.airflow.recovery_connection.mask_secret", masked.append)
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": mode})
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": "file:///s", "integrity_secret": SECRETS})
    hook = SparkRecoveryHook()
    command = submitted(hook, str(script), monkeypatch)
    log = capsys.readouterr().out
    shown = [*command, repr(hook._conf), repr(hook.settings), repr(hook.recovery.location), log]
    secrets = SECRETS.split(", ")
    assert [text for text in shown for secret in secrets if secret in text] == []
    assert (hook._env or {}).get(INTEGRITY_SECRET) == (SECRETS if mode == "client" else None)
    assert (f"in their environment: {INTEGRITY_SECRET}" in log) == (mode == "cluster")
    assert masked == secrets
    assert isinstance(hook.store, SealedStore)


@pytest.fixture
def masker() -> Iterator[None]:
    """Airflow's own masker, empty again afterwards."""
    yield
    reset_secrets_masker()


@pytest.mark.usefixtures("masker")
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_what_airflow_masks_in_arguments_is_not_recorded(
    connect: Connect, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Secrets of connections and Variables that a template has put into the script's arguments: errors of the job quote
    them, store and report do not. The driver is told where they are in its arguments, wherever it runs, and nothing
    else names them.
    """
    for secret in ("hunter22", "s3cret value"):
        mask_secret(secret)
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": mode})
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})
    arguments = ["nightly", "hunter22", "db;pw=s3cret value;tls;pw2=hunter22", "***", 3]
    hook = SparkRecoveryHook(application_args=arguments)
    command = submitted(hook, str(script), monkeypatch)
    request = parse_run_arguments(command[[text.endswith("_runner.py") for text in command].index(True) + 1 :])
    assert request.arguments == tuple(map(str, arguments))
    assert request.secrets == {"hunter22", "s3cret value"}
    named = [text for text in [*command, repr(hook._conf), repr(hook._env)] if "hunter22" in text or "s3cret" in text]
    assert named == ["hunter22", "db;pw=s3cret value;tls;pw2=hunter22"], "the script's own arguments"
    store = FileObjectStore(tmp_path / "store")
    master = JobMaster(request, store, on_fenced=lambda _: None)
    assert master.start()
    master.failed("OperationalError: cannot log in nightly with hunter22 to db;pw=s3cret value;tls")
    (report,) = build_report(str(ODD_JOB), inspect_job(store, ODD_JOB)).attempts
    assert report.error == "OperationalError: cannot log in nightly with *** to db;pw=***;tls"
    stored = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert (b"hunter22" in stored, b"s3cret" in stored) == (False, False)


@pytest.mark.usefixtures("masker")
def test_secrets_that_cannot_be_told_apart_are_masked_with_what_is_around_them() -> None:
    """One of them holds the text between the two."""
    for secret in ("p:ssw", "secondsecret"):
        mask_secret(secret)
    assert [(part.start, part.end) for part in secret_parts(["p:ssw:secondsecret"])] == [(0, 18)]


@pytest.mark.usefixtures("masker")
def test_what_a_function_returns_is_not_masked(tmp_path: Path) -> None:
    """As with ``@task``: the tasks that read it need it as it is. The rest of the report is masked."""
    mask_secret("hunter22")
    store = FileObjectStore(tmp_path / "store")
    master = JobMaster(RunRequest(store.uri, ODD_JOB, "job.py"), store, on_fenced=lambda _: None)
    assert master.start()
    master.note("function/returned", {"attempt": 1, "value": "https://hunter22.example"})
    master.vertex_skipped("a sort", "it knows hunter22")
    master.finished()
    log = logging.getLogger("test")
    told = succeed(JobSupervisor(store, ODD_JOB, RecoveryOptions(), log), log)
    assert told is not None
    assert told["returned"] == {"value": "https://hunter22.example"}
    assert "hunter22" not in repr({**told, "returned": None})


@pytest.mark.usefixtures("masker")
def test_airflows_side_masks_what_it_hands_on() -> None:
    """A report in XCom and a trigger's answer in Airflow's database, whatever the store says; names stay."""
    mask_secret("hunter22")
    told = {"vertices": [{"name": "passwords", "rows": 3}], "attempts": ({"error": "no hunter22", "ended_at": None},)}
    assert masked(told) == {
        "vertices": [{"name": "passwords", "rows": 3}],
        "attempts": [{"error": "no ***", "ended_at": None}],
    }
    assert Outcome(UNREADABLE, 1, "for hunter22").to_payload()["message"] == "for ***"


@pytest.mark.parametrize("place", ["the operator", "the Spark conf", "the run's conf"])
def test_an_integrity_secret_where_many_see_it_is_refused(connect: Connect, place: str) -> None:
    """It belongs into the connection; the error does not repeat it."""
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": "file:///s"})
    given: dict[str, Any] = {
        "the operator": {"options": {"integrity_secret": SECRETS}},
        "the Spark conf": {"conf": {"spark.recovery.integrity_secret": SECRETS}},
        "the run's conf": {"run_options": {"integrity_secret": SECRETS}},
    }
    with pytest.raises(ConfigurationError, match=f"{place} has the integrity secret.*connection") as error:
        _ = RecoveryConnection(**given[place]).settings
    assert "5ea1" not in str(error.value)


def test_a_token_of_the_worker_does_not_spoil_the_connections_keys(
    connect: Connect, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys without a token stay without one in the driver, also where the worker's environment has a token."""
    connect("spark_default", "spark", host="local[2]")
    connect("aws_default", "aws", login="AKIDEXAMPLE", password="very/secret/key", extra={"region_name": "eu-west-1"})
    connect(
        "spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p", "aws_conn_id": "aws_default"}
    )
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-worker")
    hook = SparkRecoveryHook()
    submitted(hook, str(script), monkeypatch)
    code = (
        "from airflow_provider.storage.s3.s3_client import _new_session; found = _new_session().get_credentials(); "
        "print(found.access_key, repr(found.token or None))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **(hook._env or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["AKIDEXAMPLE", "None"]


def test_the_credentials_of_a_profile(
    connect: Connect, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the connection's profile holds reaches the driver, masked in logs; what the task sets itself wins."""
    file = tmp_path / "credentials"
    file.write_text(
        "[nightly]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = of/the/profile\nregion = eu-south-2\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setattr("airflow_provider.airflow.aws.mask_secret", (masked := list[str]()).append)
    connect("spark_default", "spark", host="local[2]")
    connect("aws_default", "aws", extra={"profile_name": "nightly"})
    connect(
        "spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p", "aws_conn_id": "aws_default"}
    )
    hook = SparkRecoveryHook(env_vars={"AWS_DEFAULT_REGION": "us-east-1"})
    submitted(hook, str(script), monkeypatch)
    assert hook.recovery.storage.region == "eu-south-2"
    assert hook._env == {
        "PYTHONHASHSEED": "0",
        "SPARK_RECOVERY_AWS_ACCESS_KEY_ID": "AKIDPROFILE",
        "SPARK_RECOVERY_AWS_SECRET_ACCESS_KEY": "of/the/profile",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    assert masked == ["of/the/profile"]


def test_a_profile_that_does_not_exist(connect: Connect) -> None:
    """An AWS connection that gives no session is named, with what to correct."""
    connect("spark_default", "spark", host="local[2]")
    connect("aws_default", "aws", extra={"profile_name": "nobody"})
    connect(
        "spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p", "aws_conn_id": "aws_default"}
    )
    with pytest.raises(ConfigurationError, match=r"'aws_default' gives no credentials .*nobody.* profile"):
        _ = SparkRecoveryHook().store


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"config_kwargs": {"retry": 1}}, "TypeError: .*'retry'"),
        ({"config_kwargs": '{"s3": {"addressing_style": "path"}}'}, "AttributeError"),
        ({"config_kwargs": {"s3": {"addressing_style": "short"}}}, "addressing style short is invalid"),
        ({"role_arn": "arn:aws:iam::123456789012:role/etl", "assume_role_method": "guess"}, "'guess'"),
        pytest.param(["eu-west-1"], "AttributeError", marks=needs_lists),
    ],
)
def test_an_aws_connection_that_cannot_be_used(connect: Connect, extra: Any, says: str) -> None:
    """Whatever Airflow's hook makes of its extra, the error names the connection, and no retry follows."""
    connect("spark_default", "spark", host="local[2]")
    connect("aws_default", "aws", login="AKIDEXAMPLE", password="a/key", extra=extra)
    connect(
        "spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p", "aws_conn_id": "aws_default"}
    )
    with pytest.raises(ConfigurationError, match=rf"'aws_default' (?s:.*){says}"):
        _ = SparkRecoveryHook().recovery.storage


def test_a_connection_without_keys_leaves_the_driver_to_the_machines_own(
    connect: Connect, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What boto3 finds on the machine is not copied: the driver finds it itself, and can renew it."""
    connect("spark_default", "spark", host="local[2]")
    connect(
        "aws_default",
        "aws",
        extra={"region_name": "eu-west-1", "config_kwargs": {"s3": {"addressing_style": "path"}}},
    )
    connect(
        "spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p", "aws_conn_id": "aws_default"}
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-machine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-machine")
    hook = SparkRecoveryHook()
    submitted(hook, str(script), monkeypatch)
    assert hook._env == {"PYTHONHASHSEED": "0"}
    assert (hook.recovery.storage.region, hook.recovery.storage.addressing_style) == ("eu-west-1", "path")


def test_without_an_attempt_it_is_plain_spark_submit(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that prepared nothing adds nothing: no runner, no environment, and it needs no recovery connection."""
    connect("spark_default", "spark", host="local[2]")
    hook = SparkRecoveryHook(application_args=["a"])
    command = hook._build_spark_submit_command("job.py")
    assert command[-2:] == ["job.py", "a"]
    assert hook._env is None


def test_a_hook_can_submit_again(
    connect: Connect, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt's command line is the first one's, not one wrapped twice."""
    connect("spark_default", "spark", host="local[2]")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/s"})
    hook = SparkRecoveryHook(application_args=["a"])
    with monkeypatch.context() as patch:
        first = submitted(hook, str(script), patch)
    assert submitted(hook, str(script), monkeypatch) == first


@pytest.mark.parametrize("folder", [".", "/"])
def test_spark_submit_is_missing(
    connect: Connect, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """A worker without Spark gets one clear error, also one that a service manager has started in the root folder."""
    monkeypatch.chdir(folder)
    connect("spark_default", "spark", host="local[2]")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/s"})
    monkeypatch.setenv("PATH", str(tmp_path))
    hook = SparkRecoveryHook()
    hook.prepare(NextAttempt(ODD_JOB))
    with pytest.raises(ConfigurationError, match=r"'spark-submit' is not on the worker's PATH.*pip install pyspark"):
        hook.submit(str(script))


@pytest.mark.parametrize(
    ("lines", "error", "code"),
    [
        (["INFO x", "12:00:00 ERROR spark-recovery: It is broken. Fix it."], "It is broken. Fix it.", 0),
        (["spark-recovery: It is broken."], "It is broken.", 0),
        (["12:00:00 INFO spark-recovery: all is well", "12:00:00 WARNING spark-recovery: an ERROR occurred"], "", 0),
        (["\t diagnostics: User application exited with status 2"], "", 2),
        (["caf\udce9", "spark-recovery: It is broken."], "It is broken.", 0),  # a byte of Latin-1
    ],
)
def test_what_the_driver_says_is_heard(
    connect: Connect,
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
    error: str,
    code: int,
) -> None:
    """The runner's own error, and the exit code that YARN reports, are found in the output of spark-submit.

    A script may print text in another encoding, or bytes: its task must not fail while it runs on.
    """
    connect("spark_default", "spark", host="local[2]")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/s"})
    hook = SparkRecoveryHook()
    program = f"import os; os.write(1, {os.fsencode(chr(10).join(lines))!r})"
    monkeypatch.setattr(hook, "_build_spark_submit_command", lambda _: [sys.executable, "-c", program])
    hook.prepare(NextAttempt(ODD_JOB))
    hook.submit(str(script))
    assert (hook.driver_error, hook.exit_code) == (error, code)


def test_the_deploy_mode_may_come_from_the_conf(connect: Connect) -> None:
    """``spark.submit.deployMode`` counts where neither the operator nor the connection names a mode."""
    connect("spark_default", "spark", host="yarn")
    assert SparkRecoveryHook(conf={"spark.submit.deployMode": "cluster"}).cluster_mode
    assert not SparkRecoveryHook(conf={"spark.submit.deployMode": "cluster"}, deploy_mode="client").cluster_mode


def test_the_deploy_mode_may_come_from_a_file(
    connect: Connect, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``spark-submit`` reads it: of the properties file, or without one of Spark's defaults on this machine.

    The script then travels as in any cluster mode.
    """
    connect("spark_default", "spark", host="yarn")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})
    (tmp_path / "spark-defaults.conf").write_text("spark.ui.enabled false\nspark.submit.deployMode  cluster\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert SparkRecoveryHook().cluster_mode
    assert not SparkRecoveryHook(deploy_mode="client").cluster_mode
    assert not SparkRecoveryHook(conf={"spark.submit.deployMode": "client"}).cluster_mode
    properties = tmp_path / "more.conf"
    properties.write_text("spark.ui.enabled=false\n")
    assert not SparkRecoveryHook(properties_file=str(properties)).cluster_mode
    properties.write_text("spark.submit.deployMode=cluster\n")
    hook = SparkRecoveryHook(properties_file=str(properties))
    command = submitted(hook, str(script), monkeypatch)
    assert command[command.index("--deploy-mode") + 1] == "cluster"
    assert str(script) in command[command.index("--files") + 1].split(",")


def test_in_cluster_mode_the_script_is_shipped_and_no_credentials_are(
    connect: Connect, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On YARN in cluster mode the driver runs elsewhere: the script travels with --files, keys do not travel."""
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    connect("aws_default", "aws", login="AKIDEXAMPLE", password="very/secret/key", extra={"region_name": "eu-west-1"})
    connect(
        "spark_recovery_default", "spark_recovery", extra={"event_store": "s3://bucket/p", "aws_conn_id": "aws_default"}
    )
    hook = SparkRecoveryHook(conf={"spark.kubernetes.driverEnv.PYTHONHASHSEED": "7"})
    command = submitted(hook, str(script), monkeypatch)
    assert command[command.index("--files") + 1] == str(script)
    assert "spark.kubernetes.driverEnv.PYTHONHASHSEED=7" in command
    assert "spark.yarn.appMasterEnv.PYTHONHASHSEED=0" in command
    assert "secret" not in " ".join(command)
    assert not any("AWS_" in text for text in [*command, *(hook._env or {})])
    request = parse_run_arguments(command[[text.endswith("_runner.py") for text in command].index(True) + 1 :])
    assert request.application == "job.py"


@pytest.mark.parametrize(
    ("application", "cluster", "shipped"),
    [
        ("local:///opt/app/job.py", True, ShippedApplication("/opt/app/job.py")),
        ("s3a://bucket/jobs/job.py", False, ShippedApplication("job.py", py_files=("s3a://bucket/jobs/job.py",))),
        ("hdfs:///jobs/job.py", True, ShippedApplication("job.py", files=("hdfs:///jobs/job.py",))),
    ],
)
def test_where_the_script_lies(application: str, cluster: bool, shipped: ShippedApplication) -> None:
    """In the image, or in a remote store: the runner is told where to find it."""
    assert ship(application, cluster_mode=cluster) == shipped


@pytest.mark.parametrize(
    ("hook", "application", "names"),
    [
        ({}, "/no/such/job.py", ["/no/such/job.py", "does not exist"]),
        ({"java_class": "org.example.Main"}, "app.jar", ["org.example.Main", "JVM", "SparkSubmitOperator"]),
        ({}, "app.jar", ["app.jar", "JVM"]),
        ({}, "model.R", ["model.R", "R script"]),
        ({}, "", ["no application"]),
        ({"conf": {"spark.remote": "sc://host:15002"}}, "job.py", ["Spark Connect", "sc://host:15002"]),
        ({"env_vars": {"SPARK_REMOTE": "sc://other"}}, "job.py", ["Spark Connect", "sc://other"]),
        ({"conn_id": "connect_server"}, "job.py", ["Spark Connect", "SparkSubmitOperator"]),
        ({}, "https://example.org/jobs/job", ["https://example.org/jobs/job", "'.py'"]),
    ],
)
def test_what_cannot_be_recovered_is_refused(
    connect: Connect, hook: dict[str, Any], application: str, names: list[str]
) -> None:
    """A missing script, a JVM application, an R script and Spark Connect each get one clear error."""
    connect("spark_default", "spark", host="local[2]")
    connect("connect_server", "spark_connect", host="spark.example.org", port=15002)
    with pytest.raises(ConfigurationError) as error:
        SparkRecoveryHook(**hook).require_recoverable(application)
    for name in names:
        assert name in str(error.value)


def test_the_bundle_needs_neither_airflow_nor_the_installed_package(tmp_path: Path) -> None:
    """The driver's side is imported from the zip alone, with Airflow out of reach."""
    bundle = build_bundle(tmp_path)
    code = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'airflow':\n"
        "            raise AssertionError('the driver imports ' + name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        f"sys.path.insert(0, {str(bundle.package)!r})\n"
        "import airflow_provider.spark.runner, airflow_provider.spark.points.recover, airflow_provider.job.job_master\n"
        "print(airflow_provider.__file__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith(str(bundle.package))


def test_the_same_files_give_the_same_bundle(tmp_path: Path) -> None:
    """A bundle is built once, and two workers build the same bytes."""
    first, second = (build_bundle(tmp_path / name) for name in "ab")
    assert first.package.read_bytes() == second.package.read_bytes()
    assert {info.date_time for info in zipfile.ZipFile(first.package).infolist()} == {(1980, 1, 1, 0, 0, 0)}
    written = first.package.stat().st_mtime_ns
    assert build_bundle(tmp_path / "a").package.stat().st_mtime_ns == written


def test_a_bundle_of_which_a_part_was_cleaned_away_is_completed(tmp_path: Path) -> None:
    """Cleaners of temporary directories take single files; the next task puts them back."""
    bundle = build_bundle(tmp_path)
    content = bundle.package.read_bytes()
    bundle.package.unlink()
    assert build_bundle(tmp_path).package.read_bytes() == content
    left = sorted(path.name for path in bundle.package.parent.iterdir())
    assert left == [".used", bundle.package.name, bundle.runner.name]


def test_several_tasks_may_build_at_once(tmp_path: Path) -> None:
    """Whoever is second finds, or makes, the same whole files."""
    with ThreadPoolExecutor(8) as pool:
        bundles = list(pool.map(lambda _: build_bundle(tmp_path), range(8)))
    assert len({bundle.package for bundle in bundles}) == 1
    assert zipfile.ZipFile(bundles[0].package).testzip() is None
    left = sorted(path.name for path in bundles[0].package.parent.iterdir())
    assert left == [".used", bundles[0].package.name, bundles[0].runner.name]


def test_a_driver_without_the_package_says_so_and_is_not_retried(tmp_path: Path) -> None:
    """The script that spark-submit starts answers a missing package with one line and the code for configuration."""
    runner = tmp_path / "alone" / "spark_recovery_runner.py"
    runner.parent.mkdir()
    runner.write_bytes(build_bundle(tmp_path).runner.read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(runner)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == EXIT_CONFIGURATION
    (line,) = done.stderr.splitlines()
    assert line.startswith("spark-recovery: The driver cannot load the package")
    assert "--py-files" in line


def test_the_python_side_and_the_jars_are_of_one_version() -> None:
    """Pyspark and pyspark-client write into one folder; two versions of them would mix."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    assert [jar.name for jar in jars.glob("spark-core_*.jar")] == [f"spark-core_2.13-{pyspark.__version__}.jar"]
