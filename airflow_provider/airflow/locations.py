"""Build the links to a job's page and to its objects. Pure: callers pass in everything that a link is made of."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.storage.uris import parse_s3_uri

URL_PREFIX = "/spark-recovery"
"""Of the page's application below Airflow's base URL."""


def page_path(dag_id: str, run_id: str, task_id: str, map_index: int, page: str = "") -> str:
    """Return the path of a task instance's recovery page, or of the page *page* beside it."""
    identity = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
    return f"{URL_PREFIX}/{page}?{urlencode(identity, quote_via=quote)}"


def store_console(event_store: str, job: JobId) -> str:
    """Return the page of AWS's console that lists a job's objects; empty text for a store outside AWS.

    :param event_store: ``s3://bucket/prefix`` or ``file:///path``
    """
    if not event_store.startswith("s3://"):
        return ""
    try:
        bucket, prefix = parse_s3_uri(event_store)
    except ConfigurationError:
        return ""
    below = "/".join(part for part in (prefix, job.prefix) if part)
    return f"https://s3.console.aws.amazon.com/s3/buckets/{quote(bucket)}?prefix={quote(below)}/"
