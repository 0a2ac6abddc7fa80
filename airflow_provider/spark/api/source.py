"""``source(name, df)`` pins the file listing of a source when a job first reads it. Cheap to import."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider.core.errors import ConfigurationError, CorruptObject, ObjectNotFound
from airflow_provider.core.events import SOURCE
from airflow_provider.spark.context import recording, require_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.file_source import PinnedFile

log = logging.getLogger(__name__)


def source(name: str, df: DataFrame, *, on_reset: Callable[[str, str], object] | None = None) -> DataFrame:
    """Return *df* so that a retry reads the files that the first attempt saw, even if new ones have arrived since.

    Without it, a file that arrives between two attempts changes the input, and everything that reads it is computed
    again. If a pinned file is gone or has changed, the listing is pinned anew with a warning, and what reads it starts
    over. If a :func:`checkpoint` finds that out in the middle of an attempt, the DataFrame, and everything derived from
    it, reads the new listing from then on. The next run of the DAG is another job and sees all files. Without a
    recovery context it returns *df* itself.

    :param name: identifies the source; one name for one source
    :param df: reads one file source, as ``spark.read.parquet(…)`` returns it; columns may be selected and renamed
    :param on_reset: called with *name* and the reason when the listing was pinned anew in the middle of an attempt, so
        that the script can update what it has derived from the old one elsewhere (counts that it collected, rows that
        it wrote). Whatever it raises ends the attempt. Without it, an attempt that has looked at rows or written some
        since it reached this call does not pin the listing anew: the next attempt does, as in auto mode
        (``recovery_points``)
    :raises ConfigurationError: *df* reads no files, or more than one source
    :raises Fenced: a newer attempt owns the job

    Source: FLIP-383's snapshots of source coordinators, which alone know the splits that were found.
    """
    require_name("source", name)
    context = recording()
    if context is None:
        return df
    from airflow_provider.spark.identity.recovery_point import PinnedSource
    from airflow_provider.spark.jvm.file_source import FileSource, Listing
    from airflow_provider.spark.points.pinned_sources import save_pin

    files = FileSource.of(df)
    if files is None:
        raise ConfigurationError(
            f"source({name!r}) needs a DataFrame that reads one file source.",
            remedy='Give it what spark.read returns, before joins and unions: source("orders", spark.read.parquet(…)).',
        )
    context.master.check()
    coordinator, listing = f"{SOURCE}{name}", files.listing()
    pinned = _pinned(context, coordinator, files.place, listing.files)
    if pinned is None:
        save_pin(context, coordinator, files.place, listing.files)
        pinned = listing.files
    application = context.application
    known = application.sources.get(coordinator)
    shared = known if known is not None and known.source.place == files.place and known.pinned == pinned else None
    restricted, index = files.restricted_to(Listing(pinned, listing.partitions), shared.files if shared else None)
    if shared is not None:
        shared.on_reset = on_reset or shared.on_reset
    elif index is not None:
        if known is not None:  # one name for two sources: watch both, under different names
            application.sources[f"{coordinator} ({known.source.place})"] = known
        looks = application.looks
        application.sources[coordinator] = PinnedSource(coordinator, files, index, pinned, on_reset, looks)
    return restricted


def _pinned(context: RecoveryContext, name: str, place: str, listed: list[PinnedFile]) -> list[PinnedFile] | None:
    """Return the files that an earlier attempt pinned; ``None`` if they must be pinned now."""
    from airflow_provider.spark.identity.recovery_point import what_is_gone
    from airflow_provider.spark.points.pinned_sources import read_pin

    known = context.master.coordinator(name)
    if known is None:
        return None
    if known.get("place") != place:
        log.info("%s is pinned anew: it reads %s, no longer %s", name, place, known.get("place"))
        return None
    try:
        pinned = read_pin(context, known)
    except (CorruptObject, ObjectNotFound) as error:
        log.warning("%s is pinned anew, because the list of its files cannot be used: %s", name, error)
        return None
    if gone := what_is_gone(pinned, listed):
        log.warning("%s is pinned anew, and what reads it starts over: %s", name, gone)
        return None
    log.info(
        "%s: reading the %d files that attempt %s pinned; %d others have arrived since",
        name,
        len(pinned),
        known.get("attempt"),
        len(listed) - len(pinned),
    )
    return pinned
