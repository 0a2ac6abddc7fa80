"""What happens at a recovery point: reuse it, complete it, or compute it.

The first attempt stores the DataFrame partition by partition. A later one that reaches the same point with the same
plan, inputs and code finds what survived: everything (nothing runs), a part (only the missing partitions run), or
nothing that can be trusted (all of it runs). If storing fails, the DataFrame is computed the ordinary way: recovery
never breaks a job that would have run.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.explain import reasons
from airflow_provider.core.partitions import incarnation
from airflow_provider.spark.context import require_name
from airflow_provider.spark.environment import executors_ready
from airflow_provider.spark.identity.fingerprint import drawn_in_cache, fingerprint
from airflow_provider.spark.identity.recovery_point import RecoveryPoint
from airflow_provider.spark.jvm.queries import is_classic, schema_of
from airflow_provider.spark.jvm.relation import apart, as_vertex, cached_below, unsliced
from airflow_provider.spark.jvm.session_settings import active_session
from airflow_provider.spark.points.materialize import NotStored
from airflow_provider.spark.points.native_write import writable_by_spark
from airflow_provider.spark.points.pinned_sources import SourceReset, is_outdated
from airflow_provider.spark.points.reading import read_partitions
from airflow_provider.spark.points.releasing import released_meanwhile
from airflow_provider.spark.points.restarting import compute, up_to_date
from airflow_provider.spark.types import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from airflow_provider.core.partitions import StoredPartition
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.fingerprint import Fingerprint

log = logging.getLogger(__name__)


def recover(
    context: RecoveryContext, df: DataFrame, name: str, version: str = "", deterministic: bool | None = None
) -> DataFrame:
    """Do what :func:`airflow_provider.spark.checkpoint` promises, in a driver that has a recovery context."""
    _require_classic(df, name)
    if not isinstance(version, str):
        raise ConfigurationError(f"checkpoint({name!r}) got the version {version!r}.", remedy="A version is a text.")
    context.master.check()
    while True:
        try:
            return _recover(context, df, name, version, deterministic)
        except SourceReset:
            context.master.check()


def _recover(
    context: RecoveryContext, asked: DataFrame, name: str, version: str, deterministic: bool | None
) -> DataFrame:
    """Reach a recovery point once.

    :raises SourceReset: a source that it reads was pinned anew meanwhile
    """
    resets = context.application.resets
    df = up_to_date(context, asked)
    reason = _reason_never_to_store(context, df)
    if reason:
        return _skip(context, df, name, reason)
    identity = fingerprint(df, context, version)
    unversioned = _only_unversioned(context, identity)
    if identity.opaque and not unversioned:
        return _skip(
            context,
            df,
            name,
            f"a retry could not tell whether it is the same: {'; '.join(identity.opaque)}. If you can tell, say so: "
            f'checkpoint(df, {name!r}, version="…"), or for the whole job the option source_version',
        )
    given = name
    name, vertex = context.identify(name, identity.digest)
    not_deterministic = {
        None: identity.not_deterministic,
        True: (),
        False: (*identity.not_deterministic, "the script says that it is not deterministic"),
    }[deterministic]
    not_deterministic = (*not_deterministic, *unversioned)
    with active_session(df.sparkSession):
        df = unsliced(df, context.application.ranges)
        natively = writable_by_spark(context, df)
        point = RecoveryPoint(df, name, vertex, identity, not_deterministic, resets, unversioned, natively)
        again = _no_longer_outdated(context, point)
        if context.application.sources:  # only what comes after one may read it
            context.application.again[vertex] = partial(recover, context, asked, given, version, deterministic)
        reason = _reason_not_to_store_now(context, point)
        if reason:
            return _unstored(context, point, reason)
        made = _go_on_from(context, point)
        if again and vertex in context.done:
            context.application.recomputed.add(vertex)
        return made


def _no_longer_outdated(context: RecoveryContext, point: RecoveryPoint) -> bool:
    """Restore an outdated vertex whose files are back as they were; return whether it was outdated.

    :raises SourceReset: its identity belongs to a listing that another thread has replaced meanwhile
    """
    application, vertex = context.application, point.vertex
    with context.failing_over:
        outdated = vertex in application.outdated
        if outdated and point.resets != application.resets:
            raise SourceReset
        application.outdated.discard(vertex)
        application.renewed.pop(vertex, None)
    return outdated


def _require_classic(df: Any, name: Any) -> None:
    from pyspark.sql import DataFrame

    require_name("checkpoint", name)
    if not isinstance(df, DataFrame) or not is_classic(df):
        raise ConfigurationError(
            f"checkpoint({name!r}) got a {type(df).__module__}.{type(df).__name__}.",
            remedy="It takes a DataFrame of a classic Spark session. Spark Connect is not supported, because its "
            "client cannot see the plan's files and functions: submit the application to a cluster instead.",
        )


def _reason_never_to_store(context: RecoveryContext, df: DataFrame) -> str:
    """Return why no attempt can store *df*, whatever its plan; empty if one can."""
    if not context.master.request.options.enabled:
        return "recovery is disabled"
    if df.isStreaming:
        return "it is a streaming DataFrame"
    return refusal(schema_of(df))


def _reason_not_to_store_now(context: RecoveryContext, point: RecoveryPoint) -> str:
    """Return why this attempt cannot store *point*; empty if it can."""
    if not context.master.usable:
        return "the event store has failed"
    return executors_ready(context, point.df.sparkSession, through_arrow=not point.natively)


def _skip(context: RecoveryContext, df: DataFrame, name: str, reason: str) -> DataFrame:
    log.warning("checkpoint %r is not stored; it is computed the ordinary way: %s", name, reason)
    context.master.vertex_skipped(name, reason)
    return df


def _unstored(context: RecoveryContext, point: RecoveryPoint, reason: str) -> DataFrame:
    """Return a DataFrame that computes the vertex the ordinary way.

    What is derived from it has the same identity as in an attempt that stores the vertex: a sink that this attempt
    writes is not written again by that one.
    """
    skipped = _skip(context, point.df, point.name, reason)
    return skipped if point.not_deterministic else as_vertex(skipped, skipped, point.token())


def _go_on_from(context: RecoveryContext, point: RecoveryPoint) -> DataFrame:
    """Reuse, complete or compute the vertex; return a DataFrame that reads it."""
    master = context.master
    held = apart(point.df) if point.fingerprint.upstream else point.df  # it must not keep alive what it reads
    context.application.points[point.vertex] = replace(point, df=held)
    context.executions.wait_until_ended([point.vertex])  # another thread may compute it
    with context.failing_over:  # no restart may give up what is reused here
        if is_outdated(context, point):
            raise SourceReset
        known = master.vertex(point.vertex)
        if known is not None and known.finished and point.vertex in context.done:
            return _reading(context, point)
        survivors = master.survivors(point.vertex)
        drawn = _drawn_anew(context, point, survivors) if known is not None and survivors else ""
        if drawn:
            log.info("%s: what is stored is not used: %s", point.title, drawn)
            master.partitions_reset(point.vertex, (), drawn)
            known, survivors = master.vertex(point.vertex), {}
        if known is not None and len(survivors) == known.initialized.parallelism:
            for partition in survivors.values():
                master.partition_finished(partition)
            master.vertex_reused(point.vertex)
            if known.finished or master.vertex_finished(point.vertex):
                log.info("%s: all %d partitions reused, nothing to compute", point.title, len(survivors))
                context.hide(point.vertex)
                context.done[point.vertex] = survivors
                return _reading(context, point)
    if known is not None and known.initialized.deterministic and master.optional(point.vertex):
        state = "released" if known.released else "partly lost, but all that reads it is finished"
        log.info("%s: %s; computed only if needed", point.title, state)
        context.application.left.add(point.vertex)
        return as_vertex(point.df, point.df, point.token())
    context.application.left.discard(point.vertex)
    because = _because(context, point)
    if because:
        log.info("%s is computed again, because %s", point.title, "; ".join(because))
    try:
        with released_meanwhile(context, point):
            compute(context, point, because)
    except NotStored as error:
        return _unstored(context, point, str(error))
    return _reading(context, point)


def _only_unversioned(context: RecoveryContext, identity: Fingerprint) -> tuple[str, ...]:
    """Return the sources without a version, if only they keep *identity* from being certain, and a later attempt can
    tell whether it is an automatic retry: then what was finished is kept whole, as it was read.
    """
    same = identity.unversioned if set(identity.opaque) <= set(identity.unversioned) else ()
    return same if context.master.series else ()


def _drawn_anew(context: RecoveryContext, point: RecoveryPoint, survivors: Mapping[int, StoredPartition]) -> str:
    """Return why stored partitions do not fit what this attempt draws or reads; empty if they do.

    A frame that the script has cached has one value in an attempt, for everything that reads it.
    """
    if point.unversioned:
        if cached_below(point.df):
            return f"it was made of a cached frame that this attempt reads anew ({'; '.join(point.unversioned)})"
        if not context.master.only_retried_since(min(partition.epoch for partition in survivors.values())):
            return f"this attempt is no automatic retry of the one that stored it, and {'; '.join(point.unversioned)}"
    reasons = drawn_in_cache(point.df, context) if point.not_deterministic else ()
    return f"it was made of a cached frame that this attempt draws anew ({'; '.join(reasons)})" if reasons else ""


def _because(context: RecoveryContext, point: RecoveryPoint) -> tuple[str, ...]:
    """Return why the vertex is not the one that an earlier attempt stored under this name; empty if there is none."""
    graph = context.master.graph
    if point.vertex in graph.vertices:
        return ()
    earlier = [
        vertex.initialized
        for identity, vertex in graph.vertices.items()
        if vertex.initialized.name == point.name
        and context.master.epoch not in vertex.reached_by
        and identity not in context.called
    ]
    if not earlier:
        return ()
    last = max(earlier, key=lambda initialized: initialized.epoch)
    return tuple(reasons(last.parts, point.fingerprint.parts, last.schema, point.df.schema.json()))


def _reading(context: RecoveryContext, point: RecoveryPoint) -> DataFrame:
    with context.failing_over:  # nothing may release it before its frame is known
        stored = context.done[point.vertex]
        vertex = context.master.vertex(point.vertex)
        deterministic = vertex is not None and vertex.initialized.deterministic
        told = "" if deterministic else incarnation(partition.key for partition in stored.values())
        frame = as_vertex(point.df, read_partitions(context, point, stored), point.token(told))
        context.application.plans.follow(point.vertex, frame)
        return frame
