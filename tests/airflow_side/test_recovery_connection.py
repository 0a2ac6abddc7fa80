"""What a deployment is called if nobody has named it: what its workers are configured with, without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.airflow.recovery_connection import deployment_name
from airflow_provider.hooks.spark_recovery import SparkRecoveryHook
from tests.airflow_side.executing import Connect

BASE_URL = "AIRFLOW__API__BASE_URL"


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("https://Airflow.Example.com", "airflow.example.com"),
        ("http://airflow.example.com:8080/team-a/", "airflow.example.com:8080/team-a"),
        ("https://user:hunter22@airflow.example.com/?token=hunter22#x", "airflow.example.com"),
        ("http://[2001:db8::1]:8080", "[2001:db8::1]:8080"),
        ("http://localhost:8080", ""),
        ("http://127.0.0.1:28080/x", ""),
        ("http://[::1]:8080", ""),
        ("http://0.0.0.0:8080", ""),
        ("http://airflow.example.com:nonsense", ""),
        ("", ""),
    ],
)
def test_the_address_of_the_api_server_names_it(monkeypatch: pytest.MonkeyPatch, base_url: str, name: str) -> None:
    """Host, port and path; an address that each machine has says nothing, and no secret of a URL is kept."""
    monkeypatch.setenv(BASE_URL, base_url)
    assert deployment_name() == name


def test_the_option_comes_first(connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the connection, for example; it travels with the job like any option."""
    monkeypatch.setenv(BASE_URL, "https://airflow.example.com")
    store = {"event_store": f"file://{tmp_path}/store"}
    connect("spark_recovery_default", "spark_recovery", extra=store)
    assert SparkRecoveryHook().settings.options.deployment == "airflow.example.com"
    connect("spark_recovery_default", "spark_recovery", extra={**store, "deployment": "old.example.com"})
    assert SparkRecoveryHook().settings.options.deployment == "old.example.com"
