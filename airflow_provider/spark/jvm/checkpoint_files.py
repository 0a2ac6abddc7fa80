"""The files that ``df.checkpoint()`` leaves: one for each partition, in a folder of the application that wrote them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_provider.core.digest import digest
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.output import output_files
from airflow_provider.spark.jvm.queries import analyzed
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import companion, has_member
from airflow_provider.spark.jvm.sources import CHECKPOINT_FOLDER, checkpoint_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.core.committed_output import OutputFile

_CLEANED = "spark.cleaner.referenceTracking.cleanCheckpoints"
_WRITTEN_BY = re.compile(r"spark\.(serializer|kryo\..+|kryoserializer\..+|checkpoint\.compress|io\.compression\..+)")
"""Properties that decide how the rows are written into files."""


def folder_behind(df: DataFrame) -> str:
    """Return the folder of a frame that ``checkpoint()`` has returned; empty if its rows are not in files."""
    plan = analyzed(df)
    return checkpoint_folder(plan.rdd()) if plan.getClass().getSimpleName() == "LogicalRDD" else ""


def are_kept(spark: Any) -> bool:
    """Whether checkpoints go to files that Spark does not remove by itself."""
    context = spark._jsc.sc()
    return bool(context.getCheckpointDir().isDefined()) and not context.getConf().getBoolean(_CLEANED, False)


def are_on_this_machine(spark: Any) -> bool:
    """Whether checkpoints go to disks of the driver's machine."""
    return str(spark._jsc.sc().getCheckpointDir().get()).startswith("file:")


def written_as(spark: Any) -> str:
    """Return a digest of how the application writes rows into such files."""
    properties = sorted(spark.sparkContext.getConf().getAll())
    return digest(*(f"{name}={value}" for name, value in properties if _WRITTEN_BY.fullmatch(name)))


def checkpoint_files(spark: Any, folder: str) -> list[OutputFile]:
    """Return the files in a folder, without the description of a partitioner; none if there is no such folder.

    :param folder: as it is recorded
    """
    return output_files(spark, _path(spark, folder)) if CHECKPOINT_FOLDER.fullmatch(folder) else []


def read_instead(df: DataFrame, folder: str) -> DataFrame | None:
    """Return what ``df.checkpoint()`` returns, over files that are there; ``None`` if they are divided otherwise than
    the plan of *df* says now.

    :param folder: as it is recorded
    """
    spark: Any = df.sparkSession
    jvm = jvm_of(spark)
    rdd = spark._jsc.sc().checkpointFile(_path(spark, folder), companion(jvm.scala.reflect, "ClassTag").AnyRef())
    leaves = companion(jvm.org.apache.spark.sql.execution, "LogicalRDD")
    told = (True,) if has_member(leaves, "fromDataset$default$4") else ()  # since Spark 4.3, that it is a checkpoint
    made = leaves.fromDataset(rdd, df._jdf, False, *told)
    planned = made.outputPartitioning()
    known = planned.getClass().getSimpleName() != "UnknownPartitioning"
    return None if known and planned.numPartitions() != rdd.getNumPartitions() else dataset(spark, made)


def _path(spark: Any, folder: str) -> str:
    """Return the path of a folder, beside that of this application."""
    own = str(spark._jsc.sc().getCheckpointDir().get())
    return f"{own.rpartition('/')[0]}/{folder}"
