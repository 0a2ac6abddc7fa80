"""Where a writer of PySpark writes, and the files that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.sources import FILE_STATUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.recovery.sinks import OutputFile

FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text"})


_SPREADING = frozenset({"Repartition", "RepartitionByExpression", "RebalancePartitions", "Sort"})


def unspread(df: DataFrame) -> DataFrame:
    """Return a DataFrame with the rows of *df*, before they are put in order and spread over files at its very end."""
    plan = df._jdf.queryExecution().analyzed()
    inner = plan
    while inner.getClass().getSimpleName() in _SPREADING:
        inner = inner.child()
    return df if inner is plan else dataset(df.sparkSession, inner)


def qualified(spark: Any, path: str) -> str:
    """Return a path with its file system, as Spark itself resolves it."""
    hadoop_path = spark._jvm.org.apache.hadoop.fs.Path(path)
    return str(hadoop_path.getFileSystem(_conf(spark)).makeQualified(hadoop_path).toString())


def table_location(spark: Any, name: str) -> str:
    """Return where a table of files keeps them; empty text if there is no such table, or it is of another kind."""
    state = spark._jsparkSession.sessionState()
    identifier = state.sqlParser().parseTableIdentifier(name)
    catalog = identifier.catalog()
    if str(catalog.get() if catalog.isDefined() else spark.catalog.currentCatalog()) != "spark_catalog":
        return ""
    if not state.catalog().tableExists(identifier):
        return ""
    table = state.catalog().getTableMetadata(identifier)
    provider = table.provider()
    if not provider.isDefined() or str(provider.get()).lower() not in FILE_FORMATS:
        return ""
    return str(table.location().toString())


def output_files(spark: Any, folder: str) -> list[OutputFile]:
    """Return the files below *folder*, without hidden ones; none if there is no such folder."""
    path = spark._jvm.org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(_conf(spark))
    if not system.exists(path):
        return []
    base = str(system.makeQualified(path).toString())
    statuses = spark._jvm.org.apache.spark.deploy.SparkHadoopUtil.get().listLeafStatuses(system, path)
    found = [
        (match["path"], int(match["size"]), int(match["time"]))
        for match in FILE_STATUS.finditer(statuses.mkString("\n"))
    ]
    if len(found) != statuses.size():
        raise ValueError(f"the listing of {folder} cannot be read")
    return [file for file in found if not _hidden(file[0].removeprefix(base))]


def _hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))


def _conf(spark: Any) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()
