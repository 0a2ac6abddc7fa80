"""The page's application inside a real API server of Airflow: who may see, who may press the buttons, and what is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider.operators import publication
from airflow_provider.plugin import location
from airflow_provider.storage.discarding import find_discard
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.partition_store import PartitionStore
from tests.plugin.conftest import Run, Site
from tests.plugin.driver import lose
from tests.storage.plain_driver import PARTITIONS

pytestmark = pytest.mark.process


def test_the_page_shows_what_the_job_has_stored(failed: Run) -> None:
    """Found by what the try itself said: the job's vertices, its attempt, and where all of it is."""
    answer = failed.see().raise_for_status().json()
    assert (answer["missing"], answer["problem"]) == ("", "")
    assert answer["task"]["state"] == "failed"
    assert answer["location"]["event_store"] == failed.site.event_store
    assert answer["location"]["prefix"] == failed.job.prefix
    view = answer["view"]
    assert {vertex["name"]: vertex["cells"] for vertex in view["vertices"]} == {"a": "c4", "b": "c4"}
    assert [(attempt["state"], attempt["error"]) for attempt in view["attempts"]] == [
        ("FAILED", "ZeroDivisionError: division by zero")
    ]
    assert (answer["pulse"], answer["claimed"], answer["may_change"]) == ("FAILED", 1, True)
