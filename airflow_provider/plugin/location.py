"""Read a task instance from Airflow, and the location that its try has published (see ``links.recovery_links``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import ColumnElement, and_, case, func, or_, select, tuple_
from sqlalchemy.orm import Session

from airflow_provider.core.options import RecoveryOptions
from airflow_provider.plugin.access import RunRef, TaskInstanceRef

LOCATION_KEY = "spark_recovery"
"""The XCom that the operator pushes; a test compares it with ``links.recovery_links``, which must not be imported."""
_LONGEST_TIMEOUT = 86_400.0
_OPERATOR = "SparkRecoveryOperator"
_OPERATORS = (_OPERATOR, "SparkRecoveryDecoratedOperator")
_INSTANCE = (TaskInstance.state, TaskInstance.try_number, TaskInstance.max_tries, TaskInstance.operator)
"""What an :class:`Instance` is made of, in its order."""
_FIRST = ("running", "restarting", "deferred", "failed", "up_for_retry", "queued", "scheduled")
"""States whose jobs somebody wants to see first; where there are many, the others are not looked up."""


@dataclass(frozen=True)
class Location:
    """Where a job's state is.

    :ivar timeout: seconds without a heartbeat change before the driver counts as lost
    :ivar history_server: ``host:port`` or URL of Spark's history server; empty text if unknown
    :ivar own_settings: the task's own settings, by name, without which the connection would lead to another store
    """

    recovery_conn_id: str
    event_store: str
    timeout: float
    history_server: str = ""
    own_settings: str = ""


@dataclass(frozen=True)
class Instance:
    """A task instance in Airflow; ``state`` is empty text if it has none yet."""

    state: str
    try_number: int
    max_tries: int
    operator: str


Job = tuple[TaskInstanceRef, Instance, Location | None]


def read_instance(session: Session, task: TaskInstanceRef) -> Instance | None:
    """Return a task instance from Airflow, ``None`` if it does not exist."""
    row = session.execute(
        select(*_INSTANCE).where(
            TaskInstance.dag_id == task.dag_id,
            TaskInstance.run_id == task.run_id,
            TaskInstance.task_id == task.task_id,
            TaskInstance.map_index == task.map_index,
        )
    ).first()
    if row is None:
        return None
    return _instance(row)


def _instance(row: Sequence[Any]) -> Instance:
    state, try_number, max_tries, operator = row
    return Instance(str(state or ""), int(try_number or 0), int(max_tries or 0), str(operator or ""))


def read_location(session: Session, task: TaskInstanceRef) -> Location | None:
    """Return the location that the newest try published, ``None`` if there is none that can be read."""
    query = XComModel.get_many(
        run_id=task.run_id,
        key=LOCATION_KEY,
        task_ids=task.task_id,
        dag_ids=task.dag_id,
        map_indexes=task.map_index,
        limit=1,
    )
    found: Any = session.scalars(query).first()
    return parse_location(found.value) if found is not None else None


def read_run(session: Session, run: RunRef, most: int, located: int) -> tuple[list[Job], int]:
    """Return the listed jobs of a run, those that need attention first, and the number of unlisted ones.

    Jobs are the task instances of our operators, and those that have published a location.

    :param most: maximum number of jobs to list
    :param located: maximum number of jobs whose location is read
    """
    said = select(XComModel.task_id).where(
        *_said_in(run), XComModel.task_id == TaskInstance.task_id, XComModel.map_index == TaskInstance.map_index
    )
    is_job = and_(
        TaskInstance.dag_id == run.dag_id,
        TaskInstance.run_id == run.run_id,
        or_(TaskInstance.operator.in_(_OPERATORS), said.exists()),
    )
    rank = case(*((TaskInstance.state == state, place) for place, state in enumerate(_FIRST)), else_=len(_FIRST))
    rows = session.execute(
        select(TaskInstance.task_id, TaskInstance.map_index, *_INSTANCE)
        .where(is_job)
        .order_by(rank, TaskInstance.task_id, TaskInstance.map_index)
        .limit(most)
    ).all()
    names = [(row[0], row[1]) for row in rows[:located]]
    locations = {
        (task_id, map_index): parse_location(value)
        for task_id, map_index, value in session.execute(
            select(XComModel.task_id, XComModel.map_index, XComModel.value).where(
                *_said_in(run), tuple_(XComModel.task_id, XComModel.map_index).in_(names)
            )
        )
    }
    jobs = [
        (
            TaskInstanceRef(run.dag_id, run.run_id, task_id, map_index),
            _instance(told),
            locations.get((task_id, map_index)),
        )
        for task_id, map_index, *told in rows
    ]
    beside = session.scalar(select(func.count()).select_from(TaskInstance).where(is_job)) if len(rows) == most else 0
    return jobs, max(0, (beside or 0) - len(rows))


def _said_in(run: RunRef) -> tuple[ColumnElement[bool], ...]:
    return XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id, XComModel.key == LOCATION_KEY


def parse_location(value: Any) -> Location | None:
    """Read an XCom value, as JSON text or decoded; ``None`` if it is not a location of ours."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict):
        return None
    texts = [value.get(name) for name in ("recovery_conn_id", "event_store")]
    usual = RecoveryOptions().previous_worker_recovery_timeout
    timeout = value.get("timeout", usual)
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(timeout, int | float):
        return None
    timeout = timeout if 0 < timeout <= _LONGEST_TIMEOUT else usual  # rejects NaN, too
    more = [text if isinstance(text := value.get(name), str) else "" for name in ("history_server", "own_settings")]
    return Location(str(texts[0]), str(texts[1]), float(timeout), *more)


def what_is_missing(instance: Instance | None, location: Location | None) -> tuple[str, str]:
    """Return why there is nothing to show, and the remedy; empty texts if there is something."""
    if location is not None:
        return "", ""
    if instance is None:
        return "There is no such task instance.", "Check the address."
    if instance.operator and instance.operator not in _OPERATORS:
        return (
            f"This task is run by {instance.operator}, and nothing is recorded of it.",
            f"Use {_OPERATOR} for Spark jobs that a retry should resume; a task of a subclass fills the page as soon "
            "as a try has begun.",
        )
    if instance.try_number == 0 or instance.state in ("", "scheduled", "queued", "none"):
        return "No try of this task has begun yet.", "The page fills as soon as one has."
    return (
        "The newest try has not said where its state is stored.",
        "It says so when it begins, by an XCom named 'spark_recovery'. A try that ended before that, one with recovery "
        "disabled, one of an older release and a custom XCom backend that moves values away leave none.",
    )
