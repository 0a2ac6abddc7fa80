"""What the page reads of Airflow's database, and which store it opens. A database in memory; no server runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.providers.common.compat.sdk import BaseHook
from sqlalchemy import Engine, create_engine, insert
from sqlalchemy.orm import Session

from airflow_provider.airflow.recovery_connection import RecoveryConnection
from airflow_provider.core.errors import ConfigurationError, RecoveryError
from airflow_provider.plugin.access import RunRef
from airflow_provider.plugin.location import LOCATION_KEY, parse_location, read_run
from airflow_provider.plugin.watched_jobs import open_location

import_all_models()

from airflow.models.dagrun import DagRun  # noqa: E402 - the models refer to each other
from airflow.models.taskinstance import TaskInstance  # noqa: E402
from airflow.models.xcom import XComModel  # noqa: E402

RUN = RunRef("etl", "run-1")
OURS = "SparkRecoveryOperator"
SAID = {"recovery_conn_id": "c", "event_store": "s3://b/p", "timeout": 30.0}


class Cursor(sqlite3.Cursor):
    """Counts the rows that come out of the database."""

    rows = 0

    def fetchone(self) -> Any:
        found = super().fetchone()
        Cursor.rows += found is not None
        return found

    def fetchall(self) -> list[Any]:
        found = super().fetchall()
        Cursor.rows += len(found)
        return found


class Connection(sqlite3.Connection):
    def cursor(self, *_: Any) -> Any:
        return super().cursor(Cursor)


class Database:
    """Airflow's, as far as the page reads it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        for model in (DagRun, TaskInstance, XComModel):
            model.__table__.create(engine)
        with engine.begin() as connection:
            run = {"id": 1, "dag_id": "etl", "run_id": "run-1", "run_type": "manual", "log_template_id": None}
            empty = dict.fromkeys(("data_interval_start", "data_interval_end", "logical_date"))
            connection.execute(insert(DagRun).values(**run, **empty))

    def add(self, task_id: str, map_index: int, state: str, operator: str = OURS, said: Any = SAID) -> None:
        own = {"dag_id": "etl", "run_id": "run-1", "task_id": task_id, "map_index": map_index}
        with self.engine.begin() as connection:
            connection.execute(
                insert(TaskInstance).values(
                    **own, state=state or None, operator=operator, pool="p", try_number=1, max_tries=0
                )
            )
            if said is not None:
                connection.execute(
                    insert(XComModel).values(**own, dag_run_id=1, key=LOCATION_KEY, value=json.dumps(said))
                )


@pytest.fixture
def database() -> Iterator[Database]:
    engine = create_engine("sqlite://", connect_args={"factory": Connection})
    yield Database(engine)
    engine.dispose()


def listed(database: Database, most: int, located: int) -> tuple[list[tuple[str, int, bool]], int]:
    """What is listed, whether each has a location, and how many there are beside."""
    with Session(database.engine) as session:
        found, omitted = read_run(session, RUN, most, located)
    return [(task.task_id, task.map_index, location is not None) for task, _, location in found], omitted


def test_what_needs_somebodys_eye_comes_first(database: Database) -> None:
    """Running, then failed, then the rest; by name and map index within. Other operators count if they said so."""
    database.add("b", 10, "success")
    database.add("b", 2, "success")
    database.add("c", -1, "failed", said=None)
    database.add("d", -1, "running")
    database.add("e", -1, "", operator="SubclassOfOurs")
    database.add("other", -1, "running", operator="EmptyOperator", said=None)
    assert listed(database, 10, 10) == (
        [("d", -1, True), ("c", -1, False), ("b", 2, True), ("b", 10, True), ("e", -1, True)],
        0,
    )


def test_no_more_is_read_of_a_run_than_is_shown(database: Database) -> None:
    """However many jobs it has: the database sorts, cuts and counts; locations come for those that are looked at."""
    for index in range(60):
        database.add("mapped", index, "running" if index == 59 else "success")
    Cursor.rows = 0
    found, omitted = listed(database, 20, 3)
    assert Cursor.rows == 20 + 3 + 1
    assert (len(found), omitted) == (20, 40)
    assert found[:4] == [("mapped", 59, True), ("mapped", 0, True), ("mapped", 1, True), ("mapped", 2, False)]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A recovery connection of a task's own, and no other."""
    extra = {"event_store": f"file://{tmp_path}/store", "aws_conn_id": "aws"}
    monkeypatch.setenv("AIRFLOW_CONN_OWN", json.dumps({"conn_type": "spark_recovery", "extra": extra}))
    return monkeypatch


def test_the_page_asks_for_the_tasks_connection_and_no_other(connections: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not for ``spark_default``, which is not the page's affair, however broken that is."""
    asked: list[str] = []
    get = BaseHook.get_connection

    def note(conn_id: str) -> Any:
        asked.append(conn_id)
        return get(conn_id)

    connections.setattr(BaseHook, "get_connection", staticmethod(note))
    broken = {"conn_type": "spark", "host": "yarn", "extra": {"spark-binary": "none-of-these"}}
    connections.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(broken))
    location = parse_location({"recovery_conn_id": "own", "event_store": f"file://{tmp_path}/store"})
    assert location is not None
    assert open_location(location).uri == f"file://{tmp_path}/store"
    assert set(asked) == {"own"}


def test_without_a_connection_nothing_is_guessed(connections: pytest.MonkeyPatch) -> None:
    """A try that did not name its connection has said nothing; one whose connection is gone is one clear error."""
    assert parse_location({"event_store": "s3://b/p"}) is None
    location = parse_location({"recovery_conn_id": "gone", "event_store": "s3://b/p"})
    assert location is not None
    with pytest.raises(ConfigurationError, match="'gone' does not exist"):
        open_location(location)


def test_a_slash_at_the_end_of_an_endpoint_makes_no_other_store(connections: pytest.MonkeyPatch) -> None:
    """Two ways to write the endpoint of the connection itself: the page looks there."""
    extra = {"event_store": "s3://bucket/p", "endpoint_url": "http://minio.example.com:9000/"}
    connections.setenv("AIRFLOW_CONN_OWN", json.dumps({"conn_type": "spark_recovery", "extra": extra}))
    location = parse_location(RecoveryConnection("own").location)
    assert location is not None
    assert location.own_settings == ""
    assert open_location(location).uri == "s3://bucket/p"


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({}, ""),
        ({"aws_conn_id": "aws", "region": "eu-west-1"}, ""),
        ({"aws_conn_id": "other"}, "aws_conn_id"),
        ({"endpoint-url": "http://elsewhere", "aws_conn_id": "other"}, "aws_conn_id, endpoint_url"),
    ],
)
def test_a_store_that_the_connection_does_not_lead_to_is_not_opened(
    connections: pytest.MonkeyPatch, own: dict[str, str], says: str
) -> None:
    """A task reaches its store by settings of its own: with the connection alone that would be another store."""
    told = json.loads(json.dumps(RecoveryConnection("own", "s3://b/p", own).location))
    assert "elsewhere" not in json.dumps(told)
    location = parse_location(told)
    assert location is not None
    assert location.own_settings == says
    if says:
        with pytest.raises(RecoveryError, match=rf"with its own {says}.*recovery_conn_id"):
            open_location(location)
