"""When the store fails for good, what checkpoints had stored cannot be read back: run the script again without it.

Until then a script's DataFrames read stored partitions, so going on unrecorded is not enough. The script is run again
from the top, as a retry would, but in the same driver, and its checkpoints do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.causes import STORED_PARTITION
from airflow_provider.recovery.errors import StoreError

if TYPE_CHECKING:
    from airflow_provider.spark.job_master import JobMaster


def lost_the_store(master: JobMaster, error: BaseException) -> bool:
    """Whether the script failed with *error* because stored partitions cannot be read, and the store is to blame.

    A damaged or missing partition in a store that answers is none of this: there a retry computes it again.
    """
    if not STORED_PARTITION.search(str(error)):
        return False
    if not master.usable:
        return True
    try:
        master.store.exists(f"{master.prefix}/claims/{master.epoch:08d}.json")
    except StoreError:
        return True
    return False


def new_session() -> None:
    """Give the script a session without the views and settings of its first run, in the same Spark application."""
    from pyspark.sql import SparkSession

    old = SparkSession.getActiveSession()
    if old is None:
        return
    fresh: Any = old.newSession()
    for name in ("setActiveSession", "setDefaultSession"):
        getattr(fresh._jvm.SparkSession, name)(fresh._jsparkSession)
    SparkSession._instantiatedSession = fresh
