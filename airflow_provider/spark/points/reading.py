"""Read a stored vertex: natively where the JVM can reach the store, else through Arrow on the executors.

Native reading prunes columns and is about twice as fast. Arrow maps each stored partition to one partition, needs no
Hadoop file system, and checks what it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider.core.causes import STORED_PARTITION
from airflow_provider.core.errors import StoreError
from airflow_provider.core.vertex_token import READER
from airflow_provider.spark.jvm.carriers import from_carriers
from airflow_provider.spark.jvm.queries import schema_of
from airflow_provider.spark.jvm.relation import native_relation, readable_by_jvm
from airflow_provider.spark.points.partition_io import StoreLocation, partition_reader
from airflow_provider.spark.types import carrier_schema, natively_readable
from airflow_provider.storage.sealing import SealedStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from airflow_provider.core.partitions import StoredPartition
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.recovery_point import RecoveryPoint

_GLOB = frozenset("{}[]*?\\")


def read_partitions(context: RecoveryContext, point: RecoveryPoint, stored: dict[int, StoredPartition]) -> DataFrame:
    """Return a DataFrame with columns c0, c1, … of *point*'s types that holds the rows of all *stored* partitions."""
    return from_carriers(_read(context, point, stored), point.df)


def _read(context: RecoveryContext, point: RecoveryPoint, stored: dict[int, StoredPartition]) -> DataFrame:
    schema = carrier_schema(schema_of(point.df))
    partitions = [stored[index] for index in sorted(stored)]
    folder = f"{context.hadoop_root}/{context.master.prefix}"
    spark = point.df.sparkSession
    if not partitions:  # a plan that Spark found to be empty while it ran
        return spark.createDataFrame([], schema)
    if for_spark(context, schema) and readable_by_jvm(spark, f"{folder}/{partitions[0].key}"):
        files = {each.content_key: each.content_bytes for each in partitions if each.content_bytes}
        return native_relation(spark, folder, files, schema) if files else spark.createDataFrame([], schema)
    read = partition_reader(
        location(context),
        tuple(partition.key for partition in partitions),
        tuple(partition.object_bytes for partition in partitions),
    )
    layouts = {partition.layout for partition in partitions}
    read.__name__ = f"{READER}{point.vertex}_{'_'.join(sorted(layouts))}_{len(partitions)}"
    return spark.range(0, len(partitions), 1, len(partitions)).mapInArrow(read, schema)


def for_spark(context: RecoveryContext, schema: StructType) -> bool:
    """Whether Spark's own Parquet reader and writer keep the columns of a ``carrier_schema`` exactly in this store."""
    sealed = isinstance(context.master.store, SealedStore)  # Spark knows no seals
    return not sealed and natively_readable(schema) and not _GLOB & set(context.hadoop_root)


def location(context: RecoveryContext) -> StoreLocation:
    """Return what an executor needs to open the partition store."""
    request = context.master.request
    return StoreLocation(request.event_store, context.master.prefix, request.storage.to_mapping())


def hadoop_root(event_store: str) -> str:
    """Return the event store's root as Hadoop writes it: ``s3a://bucket/prefix`` or ``file:///path``."""
    parts = urlsplit(event_store)
    path = event_store[len(parts.scheme) + 3 + len(parts.netloc) :].rstrip("/")
    if parts.scheme == "s3":
        return f"s3a://{parts.netloc}{path}"
    return f"file://{path}"


def lost_the_store(master: JobMaster, error: BaseException) -> bool:
    """Whether the script failed with *error* because the store does not answer and its partitions cannot be read.

    A damaged or missing partition in a store that answers does not count: a retry computes it again.
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
