"""Telling Airflow deployments apart."""

from __future__ import annotations

from airflow_provider.core.job import is_another_deployment


def test_another_deployment() -> None:
    """Two names that are known and differ; whose name is not known may be anybody."""
    assert is_another_deployment("airflow.a.example", "airflow.b.example")
    assert not is_another_deployment("airflow.a.example", "airflow.a.example")
    assert not is_another_deployment("", "airflow.a.example")
    assert not is_another_deployment("airflow.a.example", "")
