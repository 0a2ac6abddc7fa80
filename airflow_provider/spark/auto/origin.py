"""Where a shuffle comes from: the query that ran it, and the settings that this began with.

A look may come when the query is over and the script has changed a setting for the next one. What is asked of a plan
then is answered with the settings of now, so these must still be the same.
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
"""What Spark records in the place of a value that looks like a secret."""


@dataclass(frozen=True)
class Origin:
    """The query that a shuffle was found in.

    :ivar settings: what the query began with
    :ivar query: Spark's record of it; ``None`` if it has none, then the shuffle cannot be older than the query
    :ivar fills: the cached frames that it fills itself, see :func:`.exchanges.cached_plan`; those of others an earlier
        query may have shuffled. ``None`` where this is not known, and shown by the record.
    """

    settings: QuerySettings
    query: QueryRecord | None = None
    fills: Set[int] | None = None

    def holds_for(self, cached: int | None) -> bool:
        """Whether a shuffle of the query's plan may be of the query.

        :param cached: the cached frame in which it stands; ``None`` if in none
        """
        return cached is None or self.fills is None or cached in self.fills

    @classmethod
    def of(cls, query: QueryRecord, application: Mapping[str, str]) -> Origin | None:
        """Return the origin that a query is; ``None`` if Spark has not recorded its settings yet.

        :param application: the settings with which the application's sessions begin
        """
        modified = query.modified
        return None if modified is None else cls(QuerySettings({**application, **modified}), query)

    def check(self, stage: int, now: Mapping[str, str]) -> QuerySettings:
        """Return what the tasks of a shuffle ran with.

        :param stage: Spark's stage id of its map tasks
        :param now: all settings of the session
        :raises NotKept: that is not known, or not what the session has now
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
