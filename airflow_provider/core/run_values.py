"""Detect values that mark the rows of one run: the current time, a UUID, the application's id. Pure.

``lit(datetime.now())``, ``lit(str(uuid4()))`` and the like give a different plan in each attempt, although it is the
same write of the script. A false positive only costs a write that could have been left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

Value = str | int | float

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", re.IGNORECASE)
_MOMENT = re.compile(r"(\d{4})\D?(\d\d)\D?(\d\d)\D{0,2}(\d\d)\D?(\d\d)(?:\D?(\d\d))?")
_UNITS = (1, 10**3, 10**6, 10**9)
"""Of numbers that are moments: seconds, and thousandths, millionths and billionths of one."""


def value_of_one_run(values: Iterable[Value], begin: float, now: float, application: str) -> str:
    """Return which of a plan's literals belongs to this run only; empty text if none seems to.

    :param begin: when the attempt began, in seconds since the Unix epoch
    :param application: Spark's id of the application
    """
    for value in values:
        if isinstance(value, str):
            if application and application in value:
                return "it holds the id of this Spark application"
            if _UUID.search(value):
                return "it holds a UUID"
            if any(_says_now(found, begin, now) for found in _MOMENT.finditer(value)):
                return "it holds the time of this attempt"
        elif any(_is_now(value / unit, begin, now) for unit in _UNITS):
            return "it holds the time of this attempt"
    return ""


def _is_now(moment: float, begin: float, now: float) -> bool:
    """Whether a number of seconds is a time within this attempt, in UTC or, without a time zone, in local time."""
    offset = datetime.fromtimestamp(now, UTC).astimezone().utcoffset()
    local = moment - (offset.total_seconds() if offset is not None else 0)
    return begin - 1 <= moment <= now + 1 or begin - 1 <= local <= now + 1


def _says_now(found: re.Match[str], begin: float, now: float) -> bool:
    """Whether a text is a time within this attempt, in UTC or local time; without seconds, a minute of it."""
    parts = [int(part or 0) for part in found.groups()]
    try:
        told = datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - both time zones are tried
    except ValueError:
        return False
    earliest = begin - (1 if found.group(6) else 60)
    return any(earliest <= moment <= now + 1 for moment in (told.replace(tzinfo=UTC).timestamp(), told.timestamp()))
