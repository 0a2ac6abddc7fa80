"""``source(name, df)`` pins the listing of a file source at first sight. Cheap to import."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import ConfigurationError, CorruptObject, ObjectNotFound, StoreError
from airflow_provider.spark.context import recording, require_name
from airflow_provider.storage.private_files import temporary_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.file_source import PinnedFile

log = logging.getLogger(__name__)

_LISTING = "files.json"


def source(name: str, df: DataFrame) -> DataFrame:
    """Return *df* so that a retry reads the files that the first attempt saw, though new ones have arrived since.

    Without it a file that arrives between two attempts changes the input, and all that reads it is computed again. A
    pinned file that is gone or was changed cannot be read as it was: then the listing is pinned anew, with a warning,
    and what reads it starts over. The next run of the DAG is another job and sees everything. Without a recovery
    context it returns *df* itself.

    :param name: says which source it is; one name for one source
    :param df: reads one file source, as ``spark.read.parquet(…)`` gives it; columns may be chosen and renamed
    :raises ConfigurationError: *df* reads no files, or more than one source
    :raises Fenced: a newer attempt owns the job

    Source: FLIP-383's snapshots of source coordinators, which alone know the splits that were found.
    """
    require_name("source", name)
    context = recording()
    if context is None:
        return df
    from airflow_provider.spark.jvm.file_source import FileSource

    files = FileSource.of(df)
    if files is None:
        raise ConfigurationError(
            f"source({name!r}) needs a DataFrame that reads one file source.",
            remedy='Give it what spark.read returns, before joins and unions: source("orders", spark.read.parquet(…)).',
        )
    context.master.check()
    listed = files.listing()
    pinned = _pinned(context, f"source/{name}", files.place, listed)
    if pinned is None:
        _pin(context, f"source/{name}", files.place, listed)
        pinned = listed
    return files.restricted_to(pinned)


def _pinned(context: RecoveryContext, name: str, place: str, listed: list[PinnedFile]) -> list[PinnedFile] | None:
    """Return the files that an earlier attempt pinned, ``None`` if they have to be pinned now."""
    known = context.master.coordinator(name)
    if known is None:
        return None
    if known.get("place") != place:
        log.info("%s is pinned anew: it reads %s, no longer %s", name, place, known.get("place"))
        return None
    try:
        pinned = _read(context, known)
    except (CorruptObject, ObjectNotFound) as error:
        log.warning("%s is pinned anew, because the list of its files cannot be used: %s", name, error)
        return None
    if gone := sorted(set(pinned) - set(listed)):
        log.warning(
            "%s is pinned anew, and what reads it starts over: %d of its %d files are gone or were changed, %s first",
            name,
            len(gone),
            len(pinned),
            gone[0][0],
        )
        return None
    log.info(
        "%s: reading the %d files that attempt %s pinned; %d others have arrived since",
        name,
        len(pinned),
        known.get("attempt"),
        len(listed) - len(pinned),
    )
    return pinned


def _pin(context: RecoveryContext, name: str, place: str, listed: list[PinnedFile]) -> None:
    state: dict[str, Any] = {"place": place, "attempt": context.master.epoch}
    with temporary_folder() as folder:
        (folder / _LISTING).write_text(json.dumps(listed))
        try:
            state["files"] = context.state_files.save(name, context.master.epoch, folder)
        except StoreError as error:
            log.warning("%s could not be pinned; a retry lists it again: %s", name, error)
            return
    if context.master.remember(name, state):
        log.info("%s: %d files pinned", name, len(listed))


def _read(context: RecoveryContext, known: dict[str, Any]) -> list[PinnedFile]:
    with temporary_folder() as folder:
        context.state_files.load(known.get("files", []), folder)
        try:
            listed = json.loads((folder / _LISTING).read_text())
            return [(str(path), int(size), int(time)) for path, size, time in listed]
        except (OSError, ValueError, TypeError) as error:
            raise CorruptObject(f"it cannot be read: {error}") from error
