"""When the store does not answer, what checkpoints have stored cannot be read back: tell that from other failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
