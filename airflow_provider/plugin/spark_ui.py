"""Find a job's Spark UI and lead people there."""

from __future__ import annotations

from html import escape
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from fastapi import HTTPException, status

from airflow_provider.core.errors import RecoveryError
from airflow_provider.plugin.access import TaskInstanceRef
from airflow_provider.plugin.location import Location
from airflow_provider.plugin.watched_jobs import WatchedJobs


class SparkUi(NamedTuple):
    """An address of a Spark UI.

    :ivar configured: whether it is on a configured history server; otherwise a driver reported it
    """

    url: str
    configured: bool


def stated_address(url: str) -> str:
    """Return a page that links to the Spark UI that a driver reported.

    Anyone who can write to the event store can set this address, so Airflow must not redirect there unseen.
    """
    place, address = escape(urlsplit(url).netloc), escape(url, quote=True)
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Spark UI</title>'
        f"<p>The driver says that its Spark UI is at <strong>{place}</strong>.</p>"
        f'<p><a href="{address}" rel="noopener noreferrer nofollow">Open the Spark UI</a></p></html>'
    )


def find_spark_ui(jobs: WatchedJobs, location: Location, task: TaskInstanceRef) -> SparkUi | None:
    """Return the address of the newest attempt's Spark UI, or of its page on the history server."""
    try:
        seen = jobs.look(location, task.job)
    except RecoveryError as error:
        raise HTTPException(status.HTTP_502_BAD_GATEWAY, str(error)) from error
    if not seen.application_id:
        return None
    if _is_of_the_web(seen.ui_url):
        return SparkUi(seen.ui_url, configured=False)
    server = location.history_server.rstrip("/")
    if not server:
        return None
    server = server if "://" in server else f"http://{server}"
    known = _is_of_the_web(server)
    return SparkUi(f"{server}/history/{quote(seen.application_id, safe='')}/", configured=True) if known else None


def _is_of_the_web(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:  # not an address at all
        return False
