"""``streaming(name, start)`` runs a Structured Streaming query that ends, once per job. Cheap to import."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import ConfigurationError, Fenced
from airflow_provider.core.job import encode_segment
from airflow_provider.spark.context import recording, require_name
from airflow_provider.storage.sealing import SealedStore
from airflow_provider.storage.state_files import FOLDER

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)

_POLL = 1
"""Seconds between two looks at whether this attempt still owns the job."""


def streaming(name: str, start: Callable[[str], StreamingQuery]) -> dict[str, Any]:
    """Run a streaming query to its end, with a checkpoint location that belongs to the job.

    A query that has finished is not started again by a retry; one that was running goes on from its own checkpoint, so
    that with a sink that Spark calls idempotent every row arrives once. Without a recovery context the location is a
    new local folder, which goes when the query has ended.

    :param name: says which query it is; one name for one query
    :param start: gets the checkpoint location, starts the query with it and a trigger that ends, and returns it:
        ``writer.option("checkpointLocation", location).trigger(availableNow=True).start(path)``
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
    master, coordinator = context.master, f"streaming/{name}"
    known = master.coordinator(coordinator)
    if known is not None and known.get("status") == "FINISHED":
        log.info("%s: finished in attempt %s, not started again", coordinator, known.get("attempt"))
        return dict(known["result"])
    location = _location(context, name)
    if isinstance(master.store, SealedStore):
        log.warning(
            "%s: its checkpoint is Spark's own and has no seal; the integrity secret does not guard it", coordinator
        )
    if known is not None:
        log.info("%s: was running in attempt %s; it goes on from its checkpoint", coordinator, known.get("attempt"))
    master.check_now()
    master.remember(coordinator, {"status": "RUNNING", "attempt": master.epoch})
    result = _run(name, start, location, master.check)
    if master.remember(coordinator, {"status": "FINISHED", "attempt": master.epoch, "result": result}):
        log.info("%s: finished after %d micro-batches", coordinator, result["batches"])
    return result


def _location(context: RecoveryContext, name: str) -> str:
    """Return the checkpoint location: the same for all attempts that resume each other."""
    from pyspark.sql import SparkSession

    from airflow_provider.spark.jvm.relation import readable_by_jvm

    root = f"{context.hadoop_root}/{context.master.prefix}"
    spark = SparkSession.getActiveSession()
    if spark is not None and not readable_by_jvm(spark, root):
        raise ConfigurationError(
            f"Spark cannot reach {context.hadoop_root}, where the checkpoint of streaming({name!r}) would be.",
            remedy="Give Spark the file system: for s3:// the package hadoop-aws and credentials for s3a://.",
        )
    return f"{root}/{FOLDER}/{context.master.graph.base_epoch:08d}/{encode_segment(f'streaming/{name}')}"


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
