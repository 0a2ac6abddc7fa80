"""Fill the script's caches when a retry leaves out the query that would have filled them.

Once a query has filled a cache, a script may remove the files behind it; a cache left empty would fail then. If the
script's code removes nothing, whatever reads the cache fills it, and nothing is computed that nobody reads.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import RecoveryError
from airflow_provider.spark.identity.functions.removals import removal_in
from airflow_provider.spark.jvm.exchanges import is_filled
from airflow_provider.spark.jvm.relation import cached_below, dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)


class FilledCaches:
    """Fills caches for one attempt."""

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context

    def fill(self, frame: Callable[[], DataFrame], purpose: str) -> None:
        """Fill the empty caches that a frame reads, as a ``count()`` in the script does, starting from what survived.

        :param frame: returns it
        :param purpose: what it would have been computed for
        """
        try:
            if not self._removal:
                return
            df = frame()
            empty = [relation for relation in cached_below(df) if not is_filled(relation)]
            if empty:
                log.info("Filling the script's caches now: it may remove their inputs later (%s).", self._removal)
            for cached in empty:
                with self._context.purposes.serving(purpose):
                    dataset(df.sparkSession, cached).count()
        except RecoveryError:
            raise
        except Exception as error:  # noqa: BLE001 - then whatever reads it first fills it, and says what is wrong
            log.info("What the script has cached could not be filled: %s", one_line(error))

    @functools.cached_property
    def _removal(self) -> str:
        return removal_by(self._context)


def removal_by(context: RecoveryContext) -> str:
    """Return the word in its code by which the script may remove files; empty if there is none."""
    try:
        script = Path(str(sys.modules["__main__"].__file__))
        return removal_in(context.application.functions.words_of(script))
    except (AttributeError, OSError) as error:  # without a file there is nothing to read
        return f"its code cannot be read: {one_line(error)}"
