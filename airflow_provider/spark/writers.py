"""PySpark's writers: the methods that set one up, and those that write; and what RDDs write themselves."""

from __future__ import annotations

from typing import NamedTuple


class Writer(NamedTuple):
    """The methods of a class of ``pyspark.sql.readwriter``; some are missing in older versions of Spark."""

    settings: tuple[str, ...]
    writes: tuple[str, ...]


WRITERS = {
    "DataFrameWriter": Writer(
        ("format", "mode", "option", "options", "partitionBy", "bucketBy", "sortBy", "clusterBy"),
        ("save", "saveAsTable", "insertInto", "parquet", "json", "csv", "orc", "text", "xml", "jdbc"),
    ),
    "DataFrameWriterV2": Writer(
        ("using", "option", "options", "tableProperty", "partitionedBy", "clusterBy"),
        ("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions"),
    ),
}
"""By the name of the class."""
RDD_TO_PATHS = (
    "saveAsTextFile",
    "saveAsPickleFile",
    "saveAsSequenceFile",
    "saveAsHadoopFile",
    "saveAsNewAPIHadoopFile",
)
"""Methods of an RDD whose first argument is the folder that they write to."""
RDD_BY_CONFIGURATION = ("saveAsHadoopDataset", "saveAsNewAPIHadoopDataset")
"""Methods of an RDD to which only a Hadoop configuration says where they write."""
