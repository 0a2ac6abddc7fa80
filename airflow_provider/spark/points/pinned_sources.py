"""The pinned sources of one application; pin one anew within an attempt if its files are gone.

All DataFrames over the source then read the new listing, including those that the script already has. Recovery points
that read it are outdated: their stored partitions are deleted, so that nothing reads them by mistake. A later recovery
point that reads an outdated one has it computed again first, under the identity that a retry will find.

Pinning anew is left to the next attempt, which starts from the top, if rows of the old listing may already be
elsewhere: the script has looked at rows or written some since it reached the source, and gave no ``on_reset``; Spark's
cache holds something; auto mode keeps shuffles; a recovery point that reads the source is not deterministic.

Source: Flink's ``notifyCoordinatorsAboutTaskFailure`` and ``subtaskReset``, by which a source hands out its splits
again.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import CorruptObject, Fenced, ResetFailed, StoreError
from airflow_provider.core.vertex_token import vertex_of
from airflow_provider.spark.jvm.queries import caches_anything
from airflow_provider.storage.private_files import temporary_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.recovery_point import PinnedSource, RecoveryPoint
    from airflow_provider.spark.jvm.file_source import Listing, PinnedFile

log = logging.getLogger(__name__)

_LISTING = "files.json"


class SourceReset(Exception):
    """A source was pinned anew; the recovery point that reads it has another identity now."""


def save_pin(context: RecoveryContext, name: str, place: str, listed: list[PinnedFile], reason: str = "") -> None:
    """Store a listing for this attempt and later ones.

    :param reason: why it replaces another one, in the middle of an attempt
    """
    state: dict[str, Any] = {"place": place, "attempt": context.master.epoch}
    if reason:
        state["reason"] = reason
    with temporary_folder() as folder:
        (folder / _LISTING).write_text(json.dumps(listed))
        try:
            state["files"] = context.state_files.save(name, context.master.epoch, folder)
        except StoreError as error:
            log.warning("%s could not be pinned; a retry lists it again: %s", name, error)
            return
    if context.master.remember(name, state):
        log.info("%s: %d files pinned", name, len(listed))


def read_pin(context: RecoveryContext, known: dict[str, Any]) -> list[PinnedFile]:
    """Return the files that :func:`save_pin` has stored.

    :raises CorruptObject: they cannot be read
    :raises ObjectNotFound: they are gone
    """
    with temporary_folder() as folder:
        context.state_files.load(known.get("files", []), folder)
        try:
            listed = json.loads((folder / _LISTING).read_text())
            return [(str(path), int(size), int(time)) for path, size, time in listed]
        except (OSError, ValueError, TypeError) as error:
            raise CorruptObject(f"it cannot be read: {error}") from error


Resets = dict[str, tuple["Listing", str]]
"""Source → its current listing, and what has become of pinned files."""


def to_reset(context: RecoveryContext, df: DataFrame) -> Resets:
    """Return the sources with lost files that *df* reads, if this attempt may pin all of them anew; else nothing."""
    resets: Resets = {}
    for name, source in context.application.sources.items():
        if source.files.read_by(df) and (found := source.gone()):
            if refused := _why_not(context, source):
                log.warning("%s: %s. Only the next attempt can pin it anew: %s.", name, found[1], refused)
                return {}
            resets[name] = found
    return resets


def _why_not(context: RecoveryContext, source: PinnedSource) -> str:
    """Return why a source cannot be pinned anew in this attempt; empty if it can."""
    application = context.application
    if context.master.request.options.recovery_points == "auto":
        return "auto mode looks at plans that read the old files"
    if caches_anything(source.source.session):
        return "something is cached that may hold rows of the old files"
    if source.on_reset is None and application.looks != source.looks:
        return "the script has read or written rows since it called source(), and passed no on_reset"
    for vertex in read_by(context, [source.name]):
        known = context.master.vertex(vertex)
        if known is not None and known.finished and not (known.initialized.deterministic and known.partitions):
            return f"{known.initialized.name} cannot be computed again within the attempt"
    return ""


def read_by(context: RecoveryContext, names: list[str]) -> list[str]:
    """Return the vertices reached so far that read one of these sources, directly or not."""
    application = context.application
    found: list[str] = []
    for vertex, point in list(application.points.items()):
        upstream = {vertex_of(token) for token in point.fingerprint.upstream}
        if vertex not in application.outdated and (
            not upstream.isdisjoint(found) or any(application.sources[name].files.read_by(point.df) for name in names)
        ):
            found.append(vertex)
    return found


def reset(context: RecoveryContext, resets: Resets) -> None:
    """Pin sources anew, give up what has read them, and call the script's ``on_reset``.

    The caller holds ``failing_over``, and has made sure that none of the vertices is being computed.

    :raises ResetFailed: ``on_reset`` failed
    """
    application, master = context.application, context.master
    reason = "; ".join(f"{name}: {said}" for name, (_, said) in resets.items())
    for vertex in read_by(context, list(resets)):
        application.outdated.add(vertex)
        context.called.pop(vertex, None)
        context.done.pop(vertex, None)
        master.delete_vertex(vertex, reason)
    application.resets += 1
    for name, (listing, said) in resets.items():
        source = application.sources[name]
        source.files.pin(listing)
        source.pinned = listing.files
        log.warning("%s is pinned anew, and what reads it starts over: %s", name, said)
        save_pin(context, name, source.source.place, listing.files, said)
    for name, (_, said) in resets.items():
        _tell(application.sources[name], said)


def _tell(source: PinnedSource, reason: str) -> None:
    if source.on_reset is None:
        return
    name = source.name.partition("/")[2]
    try:
        source.on_reset(name, reason)
    except Fenced:
        raise
    except Exception as error:
        raise ResetFailed(
            f"The source {name!r} was pinned anew ({reason}), and its on_reset failed: {one_line(error)}.",
            remedy="A retry starts from the top, with the new files.",
        ) from error


def is_outdated(context: RecoveryContext, point: RecoveryPoint) -> bool:
    """Whether a source was pinned anew since *point* got its identity, and *point* reads it."""
    application = context.application
    if point.vertex in application.outdated:
        return True
    if point.resets == application.resets:
        return False
    return any(vertex_of(token) in application.outdated for token in point.fingerprint.upstream) or any(
        source.files.read_by(point.df) for source in application.sources.values()
    )
