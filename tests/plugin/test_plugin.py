"""What Airflow loads of the page, and the judgements that need no Airflow."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

import pytest

from airflow_provider.plugin.location import Instance, Location, parse_location, what_is_missing
from airflow_provider.provider_info import get_provider_info


def test_the_plugin_is_an_entry_point_and_loads_nothing_heavy() -> None:
    """Schedulers and workers load it, too: neither the page nor what it needs is imported before somebody asks."""
    (found,) = (point for point in entry_points(group="airflow.plugins") if point.name == "spark_recovery")
    module = found.value.partition(":")[0]
    heavy = ("airflow_provider.plugin.app", "airflow_provider.hooks", "boto3", "pyspark")
    code = f"import {module}, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_page_is_packaged() -> None:
    """With the modules, and without a word from elsewhere."""
    for name in ("index.html", "run.html", "page.css", "common.js", "page.js", "run.js"):
        text = files("airflow_provider.plugin").joinpath("page", name).read_text()
        assert "://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_links_of_the_provider_exist() -> None:
    """Airflow imports them by these names."""
    for name in get_provider_info()["extra-links"]:
        module, _, attribute = name.rpartition(".")
        assert getattr(import_module(module), attribute)().name


GOOD = {"recovery_conn_id": "c", "event_store": "s3://b/p", "timeout": 3, "history_server": "h:1"}


def test_what_a_try_has_said_is_read_as_text_or_value() -> None:
    """Airflow's database holds either."""
    expected = Location("c", "s3://b/p", 3.0, "h:1")
    assert parse_location(GOOD) == parse_location(str(GOOD).replace("'", '"')) == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "",
        "s3://b/p",
        "[]",
        {},
        {"event_store": "s3://b/p"},
        GOOD | {"timeout": "3"},
        GOOD | {"event_store": 1},
    ],
)
def test_what_is_not_ours_is_nothing(value: Any) -> None:
    """A reference of an XCom backend, say, or what somebody else has pushed under that name."""
    assert parse_location(value) is None


def test_why_there_is_nothing_to_show() -> None:
    """Each case has its own sentence."""
    location = parse_location(GOOD)
    ours = "SparkRecoveryOperator"
    cases = [None, Instance("", 0, 0, ours), Instance("failed", 1, 0, "PythonOperator"), Instance("failed", 1, 0, ours)]
    assert len({what_is_missing(instance, None) for instance in cases}) == 4
    assert what_is_missing(cases[3], location) == ("", "")
    for state in ("queued", "failed"):
        assert "a subclass fills the page" in what_is_missing(Instance(state, 0, 0, "OurSubclass"), None)[1]
