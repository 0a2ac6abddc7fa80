"""Where a PySpark writer writes, and the files that are there."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any

from airflow_provider.core.sql_text import quoted_name
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import items, to_seq
from airflow_provider.spark.jvm.sources import FILE_STATUS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from airflow_provider.core.committed_output import OutputFile

FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "xml"})
"""Those whose files Spark names after their write."""


_SPREADING = frozenset({"Repartition", "RepartitionByExpression", "RebalancePartitions", "Sort"})


def unspread(df: DataFrame) -> DataFrame:
    """Return a DataFrame with the rows of *df* before the sort and repartitioning at its very end, meant for files."""
    plan = df._jdf.queryExecution().analyzed()
    inner = plan
    while inner.getClass().getSimpleName() in _SPREADING:
        inner = inner.child()
    return df if inner is plan else dataset(df.sparkSession, inner)


def qualified(spark: Any, path: str) -> str:
    """Return a path with its file system, as Spark itself resolves it."""
    hadoop_path = jvm_of(spark).org.apache.hadoop.fs.Path(path)
    return str(hadoop_path.getFileSystem(_conf(spark)).makeQualified(hadoop_path).toString())


def path_exists(spark: Any, path: str) -> bool:
    """Whether there is anything at a path."""
    hadoop_path = jvm_of(spark).org.apache.hadoop.fs.Path(path)
    return bool(hadoop_path.getFileSystem(_conf(spark)).exists(hadoop_path))


def table_location(spark: Any, name: str) -> str:
    """Return the location of a table of files; empty if there is no such table, or it is of another kind."""
    catalog = spark._jsparkSession.sessionState().catalog()
    identifier = _identifier(spark, name)
    if identifier is None or not catalog.tableExists(identifier):
        return ""
    table = catalog.getTableMetadata(identifier)
    provider = table.provider()
    if not provider.isDefined() or str(provider.get()).lower() not in FILE_FORMATS:
        return ""
    return _text_of(spark, table.location())


def new_table_location(spark: Any, name: str) -> str:
    """Return where Spark puts the files of a new table; empty for catalogs other than its own."""
    identifier = _identifier(spark, name)
    if identifier is None:
        return ""
    return qualified(spark, _text_of(spark, spark._jsparkSession.sessionState().catalog().defaultTablePath(identifier)))


def table_exists(spark: Any, name: str) -> bool:
    """Whether Spark's own catalog has a table."""
    identifier = _identifier(spark, name)
    return identifier is not None and bool(spark._jsparkSession.sessionState().catalog().tableExists(identifier))


def is_table_of_files(spark: Any, name: str, location: str, formats: Set[str] = FILE_FORMATS | {"hive"}) -> bool:
    """Whether Spark's own catalog has a table of one of the formats, with its files at *location*."""
    if not table_exists(spark, name):
        return False
    table = spark._jsparkSession.sessionState().catalog().getTableMetadata(_identifier(spark, name))
    provider = table.provider()
    known = provider.isDefined() and str(provider.get()).lower() in formats
    return known and qualified(spark, _text_of(spark, table.location())) == location


def drop_table(spark: Any, name: str) -> None:
    """Drop a table from Spark's own catalog; the files of an external one stay."""
    spark._jsparkSession.sessionState().catalog().dropTable(_identifier(spark, name), True, False)


def add_partitions(spark: Any, name: str, files: Iterable[str]) -> None:
    """Add the partitions that contain files to a table of Spark's own catalog, as Spark does after writing them.

    :param files: paths below the table's location; others do not count
    """
    catalog, identifier = spark._jsparkSession.sessionState().catalog(), _identifier(spark, name)
    table = catalog.getTableMetadata(identifier)
    if not table.tracksPartitionsInCatalog():
        return
    base = f"{qualified(spark, _text_of(spark, table.location()))}/"
    folders = {path.removeprefix(base).rpartition("/")[0] for path in files if path.startswith(base)}
    if not folders:
        return
    jvm = jvm_of(spark)
    execution, nowhere = jvm.org.apache.spark.sql.execution, jvm.scala.Option.empty()
    parse = execution.datasources.PartitioningUtils.parsePathFragment
    specs = to_seq(jvm, [jvm.scala.Tuple2(parse(folder), nowhere) for folder in sorted(folders)])
    execution.command.AlterTableAddPartitionCommand(identifier, specs, True).run(spark._jsparkSession)


def qualified_table(spark: Any, name: str) -> str:
    """Return the name of a table with its database; empty for catalogs other than Spark's own."""
    identifier = _identifier(spark, name)
    if identifier is None:
        return ""
    database = identifier.database()
    parts = (database.get() if database.isDefined() else spark.catalog.currentDatabase(), identifier.table())
    return quoted_name(parts)


def _identifier(spark: Any, name: str) -> Any:
    """Return a table's identifier; ``None`` for catalogs other than Spark's own."""
    catalog, parts = catalog_of(spark, name)
    if str(catalog.name()) != "spark_catalog":
        return None
    return spark._jsparkSession.sessionState().sqlParser().parseTableIdentifier(quoted_name(parts))


def catalog_of(spark: Any, name: str) -> tuple[Any, list[str]]:
    """Return the catalog of a table, and the parts of its name in there.

    :param name: as the script writes it
    """
    state = spark._jsparkSession.sessionState()
    catalogs, parts = state.catalogManager(), list(items(state.sqlParser().parseMultipartIdentifier(name)))
    if len(parts) > 1 and catalogs.isCatalogRegistered(parts[0]):
        return catalogs.catalog(parts[0]), parts[1:]
    return catalogs.currentCatalog(), parts


def _text_of(spark: Any, uri: Any) -> str:
    """Return a location as Hadoop's paths are written: without the escapes of a URI."""
    return str(jvm_of(spark).org.apache.hadoop.fs.Path(uri).toString())


def output_files(spark: Any, folder: str) -> list[OutputFile]:
    """Return the files below *folder*, without hidden ones; none if there is no such folder."""
    path = jvm_of(spark).org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(_conf(spark))
    if not system.exists(path):
        return []
    base = str(system.makeQualified(path).toString())
    statuses = jvm_of(spark).org.apache.spark.deploy.SparkHadoopUtil.get().listLeafStatuses(system, path)
    found = [
        (match["path"], int(match["size"]), int(match["time"]))
        for match in FILE_STATUS.finditer(statuses.mkString("\n"))
    ]
    if len(found) != statuses.size():
        raise ValueError(f"the listing of {folder} cannot be read")
    return [file for file in found if not _hidden(file[0].removeprefix(base))]


def content_digest(spark: Any, path: str) -> str:
    """Return a digest of what a file holds."""
    hadoop_path = jvm_of(spark).org.apache.hadoop.fs.Path(path)
    stream = hadoop_path.getFileSystem(_conf(spark)).open(hadoop_path)
    try:
        return str(jvm_of(spark).org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
    finally:
        stream.close()


def _hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))


def _conf(spark: Any) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()
