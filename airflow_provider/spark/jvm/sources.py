"""What a leaf of a plan reads, and in which version: files, tables, rows. What has no version is opaque."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.recovery import explain
from airflow_provider.recovery.digest import digest
from airflow_provider.recovery.file_set import FileSet
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import has_member, items, to_seq

_WITHOUT_DATA = {"Range", "OneRowRelation", "CTERelationRef"}
FILE_STATUS = re.compile(
    r"\bpath=(?P<path>.*?); isDirectory=.*?\blength=(?P<size>\d+);.*?modification_time=(?P<time>\d+)"
)
_PLACE_LENGTH = 200


@dataclass(frozen=True)
class Source:
    """What one leaf reads.

    :ivar part: the fingerprint part that it makes, ``files file:/data/orders``
    :ivar value: the part's value, for people
    :ivar identity: digest over everything that decides its rows
    :ivar opaque: why it has no identity; empty if it has
    """

    part: str
    value: str
    identity: str
    opaque: str = ""


def read_source(spark: Any, leaf: Any, name: str, local_data: dict[int, str]) -> Source | None:
    """Return what *leaf* reads, ``None`` if it reads nothing.

    :param name: its class name without the package
    :param local_data: RDD id → digest of the rows that the script gave to ``createDataFrame``
    """
    if name in _WITHOUT_DATA:
        return None
    if name == "LocalRelation":
        rows = dataset(spark, leaf)._jdf.queryExecution().executedPlan().executeCollect()
        return _rows(digest(spark._jvm.scala.runtime.ScalaRunTime.stringOf(rows)))  # the rows' bytes, in hexadecimal
    if name == "LogicalRDD":
        known = local_data.get(leaf.rdd().id())
        return _rows(known) if known else _opaque("an RDD cannot be fingerprinted")
    if name == "LogicalRelation":
        return _relation(spark, leaf.relation())
    if name == "DataSourceV2Relation":
        return _table(leaf)
    return _opaque(f"the source {name} cannot be fingerprinted")


def _opaque(reason: str) -> Source:
    return Source("opaque", "", "opaque", reason)


def _rows(identity: str) -> Source:
    return Source(explain.ROWS, identity[:16], identity)


def _relation(spark: Any, relation: Any) -> Source:
    name = relation.getClass().getSimpleName()
    if name != "HadoopFsRelation":
        return _opaque(f"the source {name} has no version to compare")
    location = relation.location()
    how = (
        relation.fileFormat().getClass().getName(),
        relation.dataSchema().json(),
        relation.partitionSchema().json(),
        json.dumps(sorted((str(pair._1()), str(pair._2())) for pair in items(relation.options().toSeq()))),
    )
    kind = location.getClass().getSimpleName()
    if kind == "CatalogFileIndex":
        location = location.filterPartitions(to_seq(spark._jvm, []))
    return _files(location, how)


def _table(leaf: Any) -> Source:
    """Return what a table of Spark's second data source interface reads: its files, or the version that it tells."""
    table = leaf.table()
    name = str(table.name())[:_PLACE_LENGTH]
    options = json.dumps(
        sorted((str(e.getKey()), str(e.getValue())) for e in leaf.options().asCaseSensitiveMap().entrySet())
    )
    if has_member(table, "fileIndex") and has_member(table, "dataSchema"):
        how = (table.getClass().getName(), table.dataSchema().json(), options)
        return _files(table.fileIndex(), how)
    version = table.version() if has_member(table, "version") else None
    if not version:
        return _opaque(f"the table {name} of {table.getClass().getSimpleName()} tells no version")
    identity = digest(table.getClass().getName(), str(table.name()), str(version), options)
    return Source(f"{explain.TABLE} {name}", str(version)[:64], identity)


def _files(location: Any, how: tuple[str, ...]) -> Source:
    if not has_member(location, "allFiles"):
        return _opaque(f"the files of {location.getClass().getSimpleName()} cannot be listed")
    statuses = location.allFiles()
    listing = statuses.mkString("\n")
    found = [(match["path"], match["size"], match["time"]) for match in FILE_STATUS.finditer(listing)]
    if len(found) != statuses.size():
        return _opaque("the listing of a file source cannot be read")
    files = FileSet.of(found)
    roots = ", ".join(path.toString() for path in items(location.rootPaths()))
    identity = digest(*how, files.digest)
    shown = replace(files, digest=identity)  # so that it also tells when they are read in another way
    return Source(f"{explain.FILES} {roots[:_PLACE_LENGTH]}", shown.encode(), identity)
