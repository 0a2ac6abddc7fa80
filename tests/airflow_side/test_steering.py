"""What a try tells Airflow's UI when it begins, and what whoever triggers the run may ask of it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider.airflow.locations import page_path, store_console
from airflow_provider.airflow.recovery_settings import run_options
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.links.recovery_links import LOCATION_KEY, EventStoreLink, RecoveryPageLink
from airflow_provider.operators.spark_recovery import SparkRecoveryOperator
from tests.airflow_side.executing import DRIVER, FINISHED, Connect, Make
from tests.airflow_side.worker import TASK_INSTANCE

PAGE = "/spark-recovery/?dag_id=dag&run_id=manual__2026-01-01T00%3A00%3A00%2B00%3A00&task_id=task&map_index=-1"


class Instance(SimpleNamespace):
    """A task instance that keeps the XComs that it is given, as JSON."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**TASK_INSTANCE, stats_tags={}, xcoms={}, **parts)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = json.loads(json.dumps(value))


def execute(task: SparkRecoveryOperator, instance: Instance, conf: Any = None) -> Any:
    return task.execute(cast("Any", {"ti": instance, "dag_run": SimpleNamespace(conf=conf)}))


def test_a_try_says_early_where_its_state_is(operator: Make, submits: Any, tmp_path: Any) -> None:
    """Before the driver starts, so also of a try that never comes back: connection, store and links, nothing else."""
    submits("raise SystemExit(1)")
    instance = Instance()
    with pytest.raises(Exception, match="Cannot execute"):
        execute(operator(), instance)
    assert instance.xcoms[LOCATION_KEY] == {
        "recovery_conn_id": "spark_recovery_default",
        "event_store": f"file://{tmp_path}/store",
        "timeout": 30.0,
        "history_server": "",
        "own_settings": "",
    }
    assert instance.xcoms["_link_RecoveryPageLink"].endswith(PAGE)
    assert "/spark-recovery/spark-ui?dag_id=dag&" in instance.xcoms["_link_SparkUiLink"]
    assert instance.xcoms["_link_EventStoreLink"].endswith(f"{PAGE}#store")


def test_no_secret_goes_to_xcom(operator: Make, submits: Any, connect: Connect) -> None:
    """Whatever the connections hold."""
    submits("raise SystemExit(1)")
    connect("aws", "aws", login="AKIA", password="sesame", extra={"region_name": "us-east-1"})
    instance = Instance()
    with pytest.raises(Exception, match=r"."):
        execute(operator(recovery_options={"aws_conn_id": "aws", "ca_bundle": "/x"}), instance)
    assert "sesame" not in json.dumps(instance.xcoms)
    assert "AKIA" not in json.dumps(instance.xcoms)


def test_a_try_that_cannot_tell_the_page_runs_all_the_same(
    operator: Make,
    submits: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """XCom fails: a warning, and the job succeeds."""
    submits(DRIVER.format(end=FINISHED))
    instance = Instance()
    instance.xcom_push = None  # type: ignore[assignment]
    report = execute(operator(), instance)
    assert report["state"] == "FINISHED"
    assert "Cannot pass the location of the job's state" in capsys.readouterr().out


def test_links_when_the_task_has_ended(operator: Make) -> None:
    """Airflow asks for them again then; they are the same."""
    instance = Instance()
    assert RecoveryPageLink().get_link(operator(), ti_key=cast("Any", instance)).endswith(PAGE)
    assert EventStoreLink().get_link(operator(), ti_key=cast("Any", instance)).endswith(f"{PAGE}#store")
    assert [link.name for link in operator().operator_extra_links] == ["Spark recovery", "Spark UI", "Event store"]


def test_the_console_of_a_store() -> None:
    """AWS's console lists a job's objects; other stores have none."""
    job = JobId.of_task_instance("d", "r:1", "t")
    assert store_console("s3://bucket/a b", job) == (
        "https://s3.console.aws.amazon.com/s3/buckets/bucket?prefix=a%20b/jobs/d/r~3A1/t/-1/%40job/"
    )
    assert store_console("s3://bucket", job).endswith("prefix=jobs/d/r~3A1/t/-1/%40job/")
    assert store_console("file:///x", job) == store_console("", job) == store_console("s3://u:p@x", job) == ""


def test_any_identity_survives_the_address() -> None:
    """Whatever characters it has."""
    assert page_path("d&x=1", "r/ü#", "t?", 3) == (
        "/spark-recovery/?dag_id=d%26x%3D1&run_id=r%2F%C3%BC%23&task_id=t%3F&map_index=3"
    )


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_the_runs_conf_overrides_the_operator(operator: Make, submits: Any, resume: str) -> None:
    """A failed attempt is resumed or not as the person who triggered the run wants, whatever operator and conf say."""
    submits(DRIVER.format(end="writer.append(ev.JobFailed(epoch=claim.epoch, error='x')); writer.flush(); sys.exit(1)"))
    with pytest.raises(Exception, match=r"."):
        execute(operator(), Instance())
    submits(DRIVER.format(end=FINISHED))
    other = "never" if resume == "auto" else "auto"
    task = operator(resume=other, conf={"spark.recovery.resume": other})
    report = execute(task, Instance(), {"spark_recovery": {"resume": resume}, "another": 1})
    assert report["attempts"][1]["fresh"] == (resume == "never")


@pytest.mark.parametrize(
    "said", [{"resume": "sometimes"}, {"resume": None}, {"resum": "never"}, "never", ["never"], None, {"resume": ["x"]}]
)
def test_a_conf_that_is_not_understood_is_one_clear_error(operator: Make, said: Any) -> None:
    """No retry can help, and nothing is submitted."""
    with pytest.raises(AirflowFailException, match=r"The run's conf has .* under 'spark_recovery'.* Trigger the run"):
        execute(operator(), Instance(), {"spark_recovery": said})


def test_a_conf_that_says_nothing_changes_nothing() -> None:
    """Runs without a conf, with another one, or with an empty one of ours."""
    assert run_options(None) == run_options({}) == run_options({"x": 1}) == run_options({"spark_recovery": {}}) == {}
    with pytest.raises(ConfigurationError):
        run_options({"spark_recovery": 1})
