"""The query that ran a shuffle, and the settings that it started with.

By the time of a look, the query may be over and the script may have changed a setting for the next one. A plan answers
questions with the current settings, so these must still be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider.spark.auto.shuffle_identity import NotKept
from airflow_provider.spark.identity.fingerprint import changed_settings
from airflow_provider.spark.jvm.session_settings import QuerySettings

if TYPE_CHECKING:
    from airflow_provider.spark.jvm.exchanges import QueryRecord

_HIDDEN = "*********(redacted)"
"""Recorded by Spark instead of a value that looks like a secret."""


@dataclass(frozen=True)
class Origin:
    """The query that a shuffle was found in.

    :ivar settings: those that the query started with
    :ivar query: Spark's record of it; ``None`` without one: then the shuffle cannot be older than the query
    :ivar fills: the cached frames that it fills itself, see :func:`.exchanges.cached_plan`; an earlier query may have
        run the shuffles of other frames. ``None`` if unknown; then the record decides.
    """

    settings: QuerySettings
    query: QueryRecord | None = None
    fills: Set[int] | None = None

    def holds_for(self, cached: int | None) -> bool:
        """Whether a shuffle in the query's plan may have been run by the query.

        :param cached: the cached frame that contains it; ``None`` if none does
        """
        return cached is None or self.fills is None or cached in self.fills

    @classmethod
    def of(cls, query: QueryRecord, application: Mapping[str, str]) -> Origin | None:
        """Return a query as an origin; ``None`` if Spark has not recorded its settings yet.

        :param application: the settings with which the application's sessions start
        """
        modified = query.modified
        return None if modified is None else cls(QuerySettings({**application, **modified}), query)

    def check(self, stage: int, now: Mapping[str, str]) -> QuerySettings:
        """Return the settings that a shuffle's tasks ran with.

        :param stage: Spark's stage id of its map tasks
        :param now: all settings of the session
        :raises NotKept: they are unknown, or differ from the session's current ones
        """
        if self.query is not None and not self.query.ran(stage):
            raise NotKept("it ran before the query in which it was found, with settings that are not known")
        ensure_same(self.settings.values, now)
        return QuerySettings(now, self.settings.in_tasks)


def ensure_same(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Make sure that no setting has changed that may change rows.

    :raises NotKept: one has
    """
    changed = changed_settings(before, now)
    if changed and before.get(changed[0]) == _HIDDEN:
        raise NotKept(f"Spark hides the value that {changed[0]} had when its query began")
    if changed:
        raise NotKept(f"{changed[0]} has changed since its query began")
