"""The one way in which all that a job has stored goes, whoever asks for it: partitions, then the files of coordinators.

What goes while the job runs is :mod:`airflow_provider.job.unneeded`'s, by the same partition store.
"""

from __future__ import annotations

from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.state_files import StateFiles


def release_all(store: ObjectStore, prefix: str, up_to: int) -> int:
    """Delete what attempt *up_to* and earlier ones have stored; return how many partitions that were.

    A later attempt may be at work, and is left alone. Again is harmless.

    :raises StoreError: the store failed
    """
    partitions = PartitionStore(store, prefix).release(up_to=up_to)
    StateFiles(store, prefix).release(up_to=up_to)
    return partitions
