"""Spark's conf is the last word on a job's options."""

from __future__ import annotations

from dataclasses import fields

import pytest

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from airflow_provider.core.options_in_conf import LOCATION, conf_settings, known_settings, with_conf
from airflow_provider.core.run_request import RunRequest

REQUEST = RunRequest(
    "s3://bucket/prefix",
    JobId(("job",)),
    "app.py",
    options=RecoveryOptions(resume="never", write_buffer_size=2**21),
    storage=StorageOptions(region="eu-west-1"),
)


def test_properties_win_over_what_the_driver_was_given() -> None:
    """Those with the prefix, and only those; empty ones say nothing."""
    conf = {
        "spark.recovery.resume": "auto",
        "spark.recovery.snapshot_min_pause": "10 s",
        "spark.recovery.region": "us-east-1",
        "spark.recovery.write_buffer_flush_interval": "",
        "spark.recovery.event_store": "s3://bucket/prefix/",
        "spark.recovery.aws_conn_id": "aws_default",
        "spark.executor.memory": "8g",
    }
    request = with_conf(REQUEST, conf)
    assert request.options == RecoveryOptions(snapshot_min_pause=10, write_buffer_size=2**21)
    assert request.storage == StorageOptions(region="us-east-1")
    assert (request.event_store, request.job) == (REQUEST.event_store, REQUEST.job)


def test_without_properties_nothing_changes() -> None:
    """The request is what the operator made it."""
    assert with_conf(REQUEST, {"spark.app.name": "x"}) == REQUEST


def test_an_unknown_property_is_named_without_its_value() -> None:
    """One clear error, with what there is; the value might be a secret that somebody put there."""
    with pytest.raises(ConfigurationError) as caught:
        with_conf(REQUEST, {"spark.recovery.secret_key": "hunter2"})
    assert "spark.recovery.secret_key" in str(caught.value)
    assert "snapshot_min_pause" in caught.value.remedy
    assert "hunter2" not in str(caught.value)


def test_a_wrong_value_is_named() -> None:
    """As anywhere else."""
    with pytest.raises(ConfigurationError, match="'snapshot_min_pause' has the value 'often'"):
        with_conf(REQUEST, {"spark.recovery.snapshot_min_pause": "often"})


def test_another_event_store_is_refused() -> None:
    """The operator would look for the job in one place, and the driver record it in another."""
    with pytest.raises(ConfigurationError, match=r"another spark\.recovery\.event_store than s3://bucket/prefix"):
        with_conf(REQUEST, {"spark.recovery.event_store": "file:///elsewhere"})


def test_every_option_can_be_a_property() -> None:
    """None is forgotten."""
    every = {field.name for group in (RecoveryOptions, StorageOptions) for field in fields(group)}
    assert known_settings() == every | {*LOCATION}
    assert conf_settings({f"spark.recovery.{name}": "x" for name in every}).keys() == every
