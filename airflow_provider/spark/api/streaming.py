"""``streaming(name, start)`` runs a Structured Streaming query to its end, once per job. Cheap to import."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import ConfigurationError, Fenced
from airflow_provider.core.events import STREAMING
from airflow_provider.core.job import encode_segment
from airflow_provider.spark.context import recording, require_name
from airflow_provider.storage.sealing import SealedStore
from airflow_provider.storage.state_files import FOLDER

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)

_POLL = 1
"""Seconds between two checks that this attempt still owns the job."""


def streaming(name: str, start: Callable[[str], StreamingQuery], *, version: str = "") -> dict[str, Any]:
    """Run a streaming query to its end, with a checkpoint location that belongs to the job.

    A retry does not start a finished query again, unless *start* or what it reaches has changed: then the query runs
    from the beginning, with a new checkpoint location. A query that was running goes on from its own checkpoint,
    changed or not, so every row arrives once if Spark calls the sink idempotent. If it is not certain whether *start*
    has changed, it counts as the same, and the log says so. Without a recovery context the location is a new local
    folder, which is removed when the query has ended.

    :param name: identifies the query; one name for one query
    :param start: gets the checkpoint location, starts the query with it and a trigger that ends, and returns it:
        ``writer.option("checkpointLocation", location).trigger(availableNow=True).start(path)``
    :param version: replaces the comparison of *start* and what it reaches: the query is the same while this text is
    :returns: ``id`` and ``batches`` (number of micro-batches so far, over all attempts), plain JSON
    :raises ConfigurationError: *start* returned no query, or Spark cannot reach the event store
    :raises StreamingQueryException: the query failed
    :raises Fenced: a newer attempt owns the job

    Source: FLIP-147: finished operators are not restarted, running ones are restored from their checkpoint.
    """
    require_name("streaming", name)
    context = recording()
    if context is None:
        with tempfile.TemporaryDirectory(prefix="spark-recovery-", ignore_cleanup_errors=True) as folder:
            return _run(name, start, folder, lambda: None)
    from airflow_provider.spark.identity.step_identity import step_identity

    master = context.master
    identity, opaque = step_identity(context, start, (), version)
    coordinator = context.unique_name(f"{STREAMING}{name}", "" if opaque else identity)
    known = master.coordinator(coordinator) or {}
    place = str(known.get("place", ""))
    if known.get("status") == "FINISHED":
        if opaque or known.get("identity") in (None, "", identity):
            log.info("%s: finished in attempt %s, not started again", coordinator, known.get("attempt"))
            if opaque:
                log.info("%s: it is unknown whether its function has changed: %s", coordinator, "; ".join(opaque))
            return dict(known["result"])
        log.info(
            "%s: finished in attempt %s, but its function has changed: it runs from the beginning",
            coordinator,
            known.get("attempt"),
        )
        place = _another_place(place, identity)
    location = _location(context, f"{coordinator} {place}" if place else coordinator)
    if isinstance(master.store, SealedStore):
        log.warning(
            "%s: its checkpoint is Spark's own and has no seal; the integrity secret does not guard it", coordinator
        )
    if known.get("status") == "RUNNING":
        log.info("%s: was running in attempt %s; it goes on from its checkpoint", coordinator, known.get("attempt"))
    master.check_now()
    state = {"attempt": master.epoch, "identity": "" if opaque else identity, "place": place}
    master.remember(coordinator, {"status": "RUNNING", **state})
    result = _run(name, start, location, master.check)
    if master.remember(coordinator, {"status": "FINISHED", **state, "result": dict(result)}):
        log.info("%s: finished after %d micro-batches", coordinator, result["batches"])
    return result


def _another_place(place: str, identity: str) -> str:
    """Return a suffix that no earlier run's checkpoint location has, and that is the same again if a record is lost."""
    runs = place.partition("-")[0]
    return f"{int(runs) + 1 if runs.isdecimal() else 2}-{identity[:16]}"


def _location(context: RecoveryContext, coordinator: str) -> str:
    """Return the checkpoint location, which all attempts that resume each other share."""
    from pyspark.sql import SparkSession

    from airflow_provider.spark.jvm.relation import readable_by_jvm

    root = f"{context.hadoop_root}/{context.master.prefix}"
    spark = SparkSession.getActiveSession()
    if spark is not None and not readable_by_jvm(spark, root):
        raise ConfigurationError(
            f"Spark cannot reach {context.hadoop_root}, where the checkpoint of {coordinator} would be.",
            remedy="Give Spark the file system: for s3:// the package hadoop-aws and credentials for s3a://.",
        )
    return f"{root}/{FOLDER}/{context.master.graph.base_epoch:08d}/{encode_segment(coordinator)}"


def _run(name: str, start: Callable[[str], StreamingQuery], location: str, check: Callable[[], None]) -> dict[str, Any]:
    query = start(location)
    if not hasattr(query, "awaitTermination"):
        raise ConfigurationError(
            f"streaming({name!r}) got a {type(query).__name__} from its function.",
            remedy="The function has to return the query: df.writeStream.….start().",
        )
    try:
        while not query.awaitTermination(_POLL):
            check()
    except Fenced:
        query.stop()
        raise
    last = query.lastProgress
    progress = json.loads(last.json if hasattr(last, "json") else json.dumps(last)) if last else {}
    return {"id": str(query.id), "batches": int(progress.get("batchId", -1)) + 1}
