"""Fill what the script has cached, where a retry leaves out the query that would have filled it.

A script may remove or replace what a cached frame was made of, once a query has filled it. Left empty, the cache would
be filled of what is there by then, or fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import RecoveryError
from airflow_provider.spark.jvm.relation import cached_below, dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)


def fill_caches(context: RecoveryContext, frame: Callable[[], DataFrame], purpose: str) -> None:
    """Run what fills the empty caches that a frame reads, as a ``count()`` of the script does: with what survived.

    :param frame: returns it
    :param purpose: what it would have been computed for
    """
    try:
        df = frame()
        for cached in cached_below(df):
            if not cached.cacheBuilder().isCachedColumnBuffersLoaded():
                with context.purposes.serving(purpose):
                    dataset(df.sparkSession, cached).count()
    except RecoveryError:
        raise
    except Exception as error:  # noqa: BLE001 - then whatever reads it first fills it, and says what is wrong
        log.info("What the script has cached could not be filled: %s", one_line(error))
