"""Settings come from the connection, the operator and Spark's conf, in that order of growing precedence."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest
from airflow.providers_manager import ProvidersManager

import airflow_provider
from airflow_provider.airflow.recovery_settings import SECRET
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from airflow_provider.core.options_in_conf import known_settings
from airflow_provider.hooks.recovery_store import RecoveryStoreHook
from airflow_provider.hooks.spark_recovery import SparkRecoveryHook
from airflow_provider.provider_info import get_provider_info
from tests.airflow_side.executing import Connect, needs_lists


@pytest.fixture(autouse=True)
def spark_connection(connect: Connect) -> None:
    connect("spark_default", "spark", host="local[2]")


def test_precedence(connect: Connect) -> None:
    """Spark's conf wins over the operator's options, these over the connection's, these over the defaults."""
    connect(
        "spark_recovery_default",
        "spark_recovery",
        extra={"event_store": "file:///one", "resume": "never", "write_buffer_size": "2 MiB", "region": ""},
    )
    hook = SparkRecoveryHook(
        conf={"spark.recovery.write_buffer_size": "4 MiB", "spark.executor.memory": "1g"},
        event_store="file:///two",
        recovery_options={"write_buffer_size": "3 MiB", "previous-worker-recovery-timeout": "5 s"},
    )
    assert hook.settings.event_store == "file:///two"
    assert hook.settings.options == RecoveryOptions(
        resume="never", write_buffer_size=4 * 2**20, previous_worker_recovery_timeout=5
    )


def test_the_form_has_every_setting() -> None:
    """The connection form offers exactly the settings that are read."""
    (connection,) = get_provider_info()["connection-types"]
    assert set(connection["conn-fields"]) == {*known_settings(), SECRET}
    assert connection["conn-fields"][SECRET]["schema"]["format"] == "password"
    assert known_settings() == {"event_store", "aws_conn_id"} | {
        field.name for group in (RecoveryOptions, StorageOptions) for field in fields(group)
    }


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        (None, ["'spark_recovery_default'", "airflow connections add", "event_store"]),
        ({"conn_type": "aws"}, ["'spark_recovery_default'", "'aws'", "'spark_recovery'"]),
        ({"extra": {}}, ["No event store", "event_store", "s3://bucket/prefix"]),
        pytest.param(
            {"extra": ["s3://bucket/p"]}, ["'spark_recovery_default'", "is a list", "JSON"], marks=needs_lists
        ),
        ({"extra": {"event_store": "file:///x", "retries": 3}}, ["'retries'", "Known options", "resume"]),
        ({"extra": {"event_store": "file:///x", "resume": "maybe"}}, ["'resume'", "'maybe'", "'never'"]),
        (
            {"extra": {"event_store": "s3://bucket/p", "aws_conn_id": "gone"}},
            ["'gone'", "does not exist", "airflow connections add gone"],
        ),
        ({"extra": {"event_store": "s3a://bucket/p"}}, ["s3a://bucket/p", "s3://bucket/p"]),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(
    connect: Connect, parts: dict[str, object] | None, names: list[str]
) -> None:
    """A missing connection, one of another type, an unknown option and a wrong value each get one clear error."""
    if parts is not None:
        connect("spark_recovery_default", **{"conn_type": "spark_recovery", **parts})
    with pytest.raises(ConfigurationError) as error:
        _ = SparkRecoveryHook().store
    for name in names:
        assert name in str(error.value)


def test_a_connection_may_be_a_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URI's scheme has no underscore: Airflow reads no type then, and the error says how it is written."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_RECOVERY_DEFAULT", "spark-recovery://?event_store=file%3A%2F%2F%2Fx")
    assert SparkRecoveryHook().settings.event_store == "file:///x"
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_RECOVERY_DEFAULT", "spark_recovery://?event_store=file%3A%2F%2F%2Fx")
    with pytest.raises(ConfigurationError, match="In a URI that is spark-recovery://"):
        _ = SparkRecoveryHook().settings


def test_the_conf_may_have_keys_of_any_kind(connect: Connect) -> None:
    """As ``SparkSubmitHook`` takes them: they are made texts where they go to the command line."""
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": "file:///x"})
    assert SparkRecoveryHook(conf={1: 2, "spark.recovery.resume": "never"}).settings.options.resume == "never"


def test_a_connection_that_is_named_on_purpose_must_exist() -> None:
    """An event store of the operator's own makes up for the default connection only: a typo must not lose options."""
    assert SparkRecoveryHook(event_store="file:///x").settings.event_store == "file:///x"
    with pytest.raises(ConfigurationError, match="'encrypted' does not exist"):
        _ = SparkRecoveryHook(recovery_conn_id="encrypted", event_store="file:///x").settings


def test_a_job_that_is_not_recovered_needs_no_connection() -> None:
    """``enabled=false``, from the operator or Spark's conf, is enough to submit the plain way."""
    assert not SparkRecoveryHook(recovery_options={"enabled": False}).recovery.enabled
    hook = SparkRecoveryHook(conf={"spark.recovery.enabled": "no"}, recovery_options={"enabled": True})
    assert not hook.recovery.enabled
    with pytest.raises(ConfigurationError, match="does not exist"):
        _ = SparkRecoveryHook(recovery_options={"enabled": True}).recovery.enabled
    with pytest.raises(ConfigurationError, match="'perhaps'"):
        _ = SparkRecoveryHook(recovery_options={"enabled": "perhaps"}).recovery.enabled


def test_airflow_discovers_the_provider() -> None:
    """Airflow's own registry finds the provider by its entry point, with its connection type and hook."""
    manager = ProvidersManager()
    try:
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
    except ImportError:  # Airflow 3.1 has the hooks in the one manager
        hooks = manager.hooks
    else:
        hooks = ProvidersManagerTaskRuntime().hooks  # type: ignore[assignment]
    found = manager.providers["airflow-provider-spark-recovery"]
    assert found.version == airflow_provider.__version__
    hook = hooks["spark_recovery"]
    assert hook is not None
    assert hook.hook_class_name == "airflow_provider.hooks.recovery_store.RecoveryStoreHook"
    assert hook.connection_id_attribute_name == "recovery_conn_id"


@pytest.mark.integration
def test_the_connection_form_has_a_field_for_every_setting() -> None:
    """As the API server gives it to the browser, also in Airflow 3.1; and none is made up."""
    code = (
        "from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService\n"
        "form = {entry.connection_type: entry for entry in HookMetaService.hook_meta_data()}['spark_recovery']\n"
        "print('\\n'.join(f'field {name}' for name in form.extra_fields))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fields = {line.removeprefix("field ") for line in done.stdout.splitlines() if line.startswith("field ")}
    assert fields == {*known_settings(), SECRET}


def test_the_test_button(connect: Connect, tmp_path: object) -> None:
    """*Test* tries the store and answers with what is wrong and what to do, or with what works."""
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})
    assert RecoveryStoreHook().test_connection()[0] is True
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": "file:///proc/nowhere"})
    works, message = RecoveryStoreHook().test_connection()
    assert works is False
    assert "/proc/nowhere" in message
