"""The operator's extra links: the recovery page, the Spark UI, and where the job's state is stored.

Airflow asks a link for its address after the task has ended; while it runs, the UI shows the address that the operator
has pushed under :attr:`BaseOperatorLink.xcom_key` (:func:`publish`).
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
    """Link to the recovery page."""

    name = "Spark recovery"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address."""
        return address(ti_key)


class SparkUiLink(BaseOperatorLink):
    """Link to the newest attempt's Spark UI, or its page on the history server; looked up when the link is followed."""

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of a page that leads to the application."""
        return address(ti_key, "spark-ui")


class EventStoreLink(BaseOperatorLink):
    """Link to the job's objects: in AWS's console, or on the recovery page for other stores."""

    name = "Event store"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address."""
        job = JobId.of_task_instance(ti_key.dag_id, ti_key.run_id, ti_key.task_id, _index(ti_key))
        console = store_console(getattr(operator, "aws_event_store", ""), job)
        return console or f"{address(ti_key)}#store"


LINKS = (RecoveryPageLink(), SparkUiLink(), EventStoreLink())


def address(ti_key: Any, page: str = "") -> str:
    """Return the full address of a task instance's recovery page, or of another page beside it."""
    base = str(conf.get("api", "base_url", fallback="")).rstrip("/")
    return base + page_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id, _index(ti_key), page)


def _index(ti_key: Any) -> int:
    return -1 if ti_key.map_index is None else int(ti_key.map_index)


def publish(operator: Any, instance: Any, location: dict[str, Any], log: logging.Logger) -> None:
    """Push the job's location and the links to XCom, so that Airflow's UI can show the job while it runs.

    Called in each try, because Airflow clears XComs before each. A failure to push does not fail the task. Nothing
    pushed is secret: it includes the name of a connection, never its contents.

    :param instance: the task instance
    :param location: plain JSON without secrets
    """
    try:
        instance.xcom_push(key=LOCATION_KEY, value=location)
        for link in LINKS:
            instance.xcom_push(key=link.xcom_key, value=link.get_link(operator, ti_key=instance))
    except Exception as error:  # noqa: BLE001 - the job runs without its page
        log.warning("Cannot pass the location of the job's state to the recovery page: %s", error)
