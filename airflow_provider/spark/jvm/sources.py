"""What a leaf of a plan reads, and in which version: files, tables, rows. What has no version is opaque."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.core import explain
from airflow_provider.core.digest import digest
from airflow_provider.core.file_set import FileSet
from airflow_provider.spark.jvm.scala import has_member, items, to_seq

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


def read_source(spark: Any, relation: Any, leaf: Any, local_data: dict[int, str]) -> Source:
    """Return what a relation of files or a table reads.

    :param leaf: the plan's node that holds it
    :param local_data: RDD id → digest of the rows that the script gave to ``createDataFrame``
    """
    if leaf.getClass().getSimpleName() == "DataSourceV2Relation":
        return _table(leaf)
    return _relation(spark, relation)


def read_rows(spark: Any, rdd: Any, leaf: Any, local_data: dict[int, str]) -> Source:
    """Return what an RDD holds: known only of rows that the script gave to ``createDataFrame``."""
    known = local_data.get(int(rdd.id()))
    return _rows(known) if known else _opaque("an RDD cannot be fingerprinted")


def read_scan(spark: Any, scan: Any, leaf: Any, local_data: dict[int, str]) -> Source:
    """Return what a scan of Spark's second data source interface reads."""
    name = scan.getClass().getSimpleName()
    return _opaque(f"the scan {name} of a table cannot be fingerprinted")


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
        sorted((str(e.getKey()), str(e.getValue())) for e in leaf.options().asCaseSensitiveMap().entrySet().toArray())
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
