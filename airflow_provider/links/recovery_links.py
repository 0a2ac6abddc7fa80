"""The operator's extra links: the recovery page, the Spark UI, and where the job's state is stored.

Airflow asks a link for its address when the task has ended; while it runs, the UI shows what the operator has pushed
under :attr:`BaseOperatorLink.xcom_key` (:func:`publish`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf

from airflow_provider.airflow.locations import page_path, store_console
from airflow_provider.core.job import JobId

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

LOCATION_KEY = "spark_recovery"
"""XCom with what the recovery page has to know."""


class RecoveryPageLink(BaseOperatorLink):
    """The page that shows what survived, and steers it."""

    name = "Spark recovery"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address."""
        return address(ti_key)


class SparkUiLink(BaseOperatorLink):
    """The Spark UI of the newest attempt, or its page on the history server: looked up when somebody follows it."""

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of a page that leads on to the application."""
        return address(ti_key, "spark-ui")


class EventStoreLink(BaseOperatorLink):
    """Where the job's events and partitions are: in AWS's console, or on the recovery page for other stores."""

    name = "Event store"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address."""
        job = JobId.of_task_instance(ti_key.dag_id, ti_key.run_id, ti_key.task_id, _index(ti_key))
        console = store_console(getattr(operator, "aws_event_store", ""), job)
        return console or f"{address(ti_key)}#store"


LINKS = (RecoveryPageLink(), SparkUiLink(), EventStoreLink())


def address(ti_key: Any, page: str = "") -> str:
    """Return the whole address of the recovery page of a task instance, or of another page beside it."""
    base = str(conf.get("api", "base_url", fallback="")).rstrip("/")
    return base + page_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id, _index(ti_key), page)


def _index(ti_key: Any) -> int:
    return -1 if ti_key.map_index is None else int(ti_key.map_index)


def publish(operator: Any, instance: Any, location: dict[str, Any], log: logging.Logger) -> None:
    """Push where the job's state is, and the links, so that Airflow's UI can show the job while it runs.

    In each try, because Airflow wipes XComs before each. That it cannot be shown is no reason to fail. Nothing of it is
    secret: the name of a connection, never what it holds.

    :param instance: the task instance
    :param location: plain JSON without secrets
    """
    try:
        instance.xcom_push(key=LOCATION_KEY, value=location)
        for link in LINKS:
            instance.xcom_push(key=link.xcom_key, value=link.get_link(operator, ti_key=instance))
    except Exception as error:  # noqa: BLE001 - the job runs without its page
        log.warning("The recovery page cannot be told where the job's state is: %s", error)
