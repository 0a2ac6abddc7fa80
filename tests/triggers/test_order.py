"""What Airflow's database keeps of a trigger stays readable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider.airflow.order import LOST, Application, Order, Outcome
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.triggers.job_trigger import SparkRecoveryTrigger

FIRST: dict[str, Any] = {
    "version": 1,
    "job": "dag/manual__2026-01-01T00:00:00+00:00/task/-1",
    "event_store": "s3://bucket/prefix",
    "recovery_conn_id": "spark_recovery_default",
    "settings": {"aws_conn_id": "aws_default", "region": "eu-central-1"},
    "epoch": 3,
    "after": 2,
    "timeout": 30.0,
    "pause": 12.5,
    "claim_within": 60.0,
    "application": {"manager": "yarn", "external_id": "application_1_3", "conn_id": "spark_default"},
}
"""As release 1 writes it. Never edit: deferred tasks of that release must be resumed by all later ones."""


def test_a_trigger_of_release_one_is_loaded() -> None:
    """It becomes the same trigger, which is written the same."""
    path, kwargs = SparkRecoveryTrigger(**FIRST).serialize()
    assert path == "airflow_provider.triggers.job_trigger.SparkRecoveryTrigger"
    assert {name: kwargs[name] for name in FIRST if name != "version"} == {
        name: value for name, value in FIRST.items() if name != "version"
    }
    assert json.loads(json.dumps(kwargs)) == kwargs


def test_later_keys_are_ignored_and_missing_ones_have_defaults() -> None:
    """A release that is older or newer than the one that deferred the task."""
    later = {**FIRST, "version": 9, "colour": "red", "application": {**FIRST["application"], "attempt": 1}}
    assert Order.from_kwargs(later) == Order.from_kwargs(FIRST)
    small = Order.from_kwargs({"job": "a", "event_store": "file:///x"})
    assert (small.epoch, small.timeout, small.application) == (0, 30.0, Application())


def test_a_trigger_without_a_job_is_one_clear_error() -> None:
    """Somebody else's kwargs."""
    with pytest.raises(ConfigurationError, match="not told which job"):
        SparkRecoveryTrigger(path="/x")


def test_the_event_of_release_one_is_understood() -> None:
    """And what nobody has ever written counts as a driver that is lost, so that a retry looks what became of it."""
    first = {"version": 1, "kind": "finished", "epoch": 3, "message": ""}
    assert Outcome.from_payload(first) == Outcome("finished", 3)
    assert Outcome.from_payload(first).to_payload() == {**first, "beat": -1}
    for payload in (None, "done", {}, {"kind": "lost", "epoch": "3"}):
        assert (Outcome.from_payload(payload).kind, Outcome.from_payload(payload).epoch) == (LOST, 0)
