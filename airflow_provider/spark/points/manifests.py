"""Accumulators by which tasks report to the driver what they stored; updates arrive as each task ends.

Spark may deliver an update twice (a task that ran twice); receivers must tolerate that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Gathering:
    """On an executor: gather reports until the task ends."""

    def zero(self, value: object) -> list[Any]:
        """Return the empty list of reports."""
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802 - Spark's name
        """Append the reports of *value2*."""
        return [*value1, *value2]


class Delivering(Gathering):
    """On the driver: pass each report on; becomes :class:`Gathering` on its way to an executor."""

    def __init__(self, take: Callable[..., None]) -> None:
        self._take = take

    def __reduce__(self) -> tuple[Any, ...]:
        return (Gathering, ())

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802 - Spark's name
        """Pass on the reports of *value2*."""
        for report in value2:
            self._take(*report)
        return []
