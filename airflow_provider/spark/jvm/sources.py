"""What a leaf of a plan reads, and in which version: files, tables, rows. A source without a version is opaque.

Some opaque sources can still be described: which table of which database is asked for what, or by which code an RDD is
made. The description says that two leaves ask for the same, not that they get it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core import explain
from airflow_provider.core.digest import digest
from airflow_provider.core.file_set import FileSet
from airflow_provider.core.redaction import names_a_secret, redacted
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.scala import companion, has_member, items

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILE_STATUS = re.compile(
    r"\bpath=(?P<path>.*?); isDirectory=.*?\blength=(?P<size>\d+);.*?modification_time=(?P<time>\d+)"
)
CHECKPOINT_FOLDER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/rdd-\d{1,10}")
"""As Spark names it: a UUID for the application, and a number for the RDD."""
_PLACE_LENGTH = 200
_OF_OTHER_FILES = {"avroschemaurl", "rowvalidationxsdpath"}
"""Options that name a file on which the rows depend, too."""
_PATHS = {"path", "paths"}
"""Options that say where files are."""
_OF_SPARK = ("MapPartitionsRDD", "UnionRDD")
"""RDDs that PySpark adds around the others: the schema, which the plan shows, and conversions."""


@dataclass(frozen=True)
class Source:
    """What one leaf reads.

    :ivar part: its fingerprint part, ``files file:/data/orders``
    :ivar value: the part's value, for people
    :ivar identity: digest over everything that decides its rows
    :ivar opaque: why it has no identity; empty if it has
    :ivar asked: what it asks for, if it is opaque and that can be described; an RDD is described elsewhere
    :ivar made: the JVM's object that represents it in all plans of the script
    :ivar how: the way in which files are read, wherever they are
    :ivar places: the folders, or files, that the script has named, or where its table is
    :ivar roots: the folders, or files, that were listed: of a table one for each partition
    :ivar partitions: values and folders of the partitions that a catalog has named
    :ivar files: those that are read: path, size in bytes, modification time in milliseconds, as text; none if the rows
        reveal which files they come from
    """

    part: str
    value: str
    identity: str
    opaque: str = ""
    asked: str = ""
    made: Any = None
    how: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    files: Sequence[tuple[str, str, str]] = ()
    of_each_run: str = ""
    marked: str = ""

    @property
    def lasting(self) -> str:
        """What represents it in every attempt."""
        return self.of_each_run or self.identity


@dataclass(frozen=True)
class LocalRows:
    """Rows that the script has given to ``createDataFrame``.

    :ivar identity: represents them
    :ivar of_each_run: the same without values that mark this attempt alone; empty if there are none
    :ivar marked: what marks them
    """

    identity: str
    of_each_run: str = ""
    marked: str = ""

    def of(self, schema: str) -> LocalRows:
        """Return their identities as rows of a schema."""
        each = digest(self.of_each_run, schema) if self.of_each_run else ""
        return replace(self, identity=digest(self.identity, schema), of_each_run=each)


def read_files(words: Iterator[str]) -> Source:
    """Return what a relation of files reads, from the words of ``PlanWalk.java``."""
    how = [next(words) for _ in range(3)]  # the format, the columns of the data, those of the partitions
    told, places = bool(next(words)), [next(words) for _ in range(int(next(words)))]
    options = [(next(words), next(words)) for _ in range(int(next(words)))]
    partitions = [(next(words), next(words)) for _ in range(int(next(words)))]
    kind = next(words)
    if next(words) == "unlisted":
        return _opaque(f"the files of {kind} cannot be listed")
    roots = [next(words) for _ in range(int(next(words)))]
    files = [(next(words), next(words), next(words)) for _ in range(int(next(words)))]
    for name in sorted({name for name, _ in options if name.lower() in _OF_OTHER_FILES}):
        return _opaque(f"the option {name} names a file that decides how others are read")
    given = (json.dumps(sorted(partitions)),) if partitions else ()
    source = _files(roots, files, (*how, json.dumps(sorted(options)), *given))
    elsewhere = [(name, value) for name, value in options if name.lower() not in _PATHS]
    return replace(
        source,
        how=(*how, json.dumps(sorted(elsewhere))),
        places=tuple(places),
        partitions=given,
        roots=tuple(roots),
        files=() if told else files,
    )


def read_lake(words: Sequence[str]) -> Source:
    """Return what a scan of an Iceberg table reads, from the words of ``LakeScan.java``."""
    name, _, _, *files = words
    identity = digest("iceberg", *words)
    return Source(f"{explain.TABLE} {name[:_PLACE_LENGTH]}", f"{len(files)} files #{identity[:16]}", identity)


def read_table(table: Any, leaf: Any, local_data: dict[int, LocalRows]) -> Source:
    """Return what a table, or a relation of something other than files, reads."""
    if leaf.getClass().getSimpleName() == "DataSourceV2Relation":
        return _table(leaf)
    kind = table.getClass().getSimpleName()
    asked = _query(table) if kind == "JDBCRelation" else ""
    return _opaque(f"the source {kind} has no version to compare", asked, table)


def read_hive_table(table: Any, leaf: Any, local_data: dict[int, LocalRows]) -> Source:
    """Return what a table is that Hive's classes read, whose files Spark does not list."""
    name = str(table.identifier().unquotedString())
    return _opaque(f"the table {name} is read by Hive's classes", digest("hive", name, table.schema().json()), leaf)


def read_rows(rdd: Any, leaf: Any, local_data: dict[int, LocalRows]) -> Source:
    """Return what an RDD holds, which is known only for rows that the script gave to ``createDataFrame``, or that
    Spark has checkpointed.
    """
    known = local_data.get(int(rdd.id()))
    if known is None and (folder := checkpoint_folder(rdd)):
        return Source(f"{explain.FILES} checkpoint {folder}", folder, digest("checkpoint", folder))
    if known is None:
        return replace(_opaque("an RDD cannot be fingerprinted"), made=rdd)
    return replace(_rows(known.identity), of_each_run=known.of_each_run, marked=known.marked)


def checkpoint_folder(rdd: Any) -> str:
    """Return the folder of a reliably checkpointed RDD: ``<uuid>/rdd-<number>``; empty if there is none.

    Nothing is ever written twice to such a folder, so its name stands for the rows, and for how they are divided.
    """
    path = rdd.getCheckpointFile()
    folder = "/".join(str(path.get()).rsplit("/", 2)[1:]) if path.isDefined() else ""
    return folder if CHECKPOINT_FOLDER.fullmatch(folder) else ""


def read_scan(scan: Any, leaf: Any, local_data: dict[int, LocalRows]) -> Source:
    """Return what a scan of Spark's second data source interface reads."""
    name = scan.getClass().getSimpleName()
    return _opaque(f"the scan {name} of a table cannot be fingerprinted")


def _opaque(reason: str, asked: str = "", made: Any = None) -> Source:
    return Source("opaque", "", "opaque", reason, asked, made)


def _query(relation: Any) -> str:
    """Return what a JDBC relation asks: the database, the table or query, and how it is split. No secret."""
    options = _options(relation.jdbcOptions().asProperties())
    parts = [part.toString() for part in items(relation.parts())]
    return digest("jdbc", relation.schema().json(), json.dumps(options), *parts)


def _options(given: Any) -> list[tuple[str, str]]:
    """Return the options in a Java map, without secrets and without the users and passwords of URLs."""
    pairs = ((str(entry.getKey()), str(entry.getValue())) for entry in given.entrySet().toArray())
    return sorted((name.lower(), redacted(value, ())) for name, value in pairs if not names_a_secret(name))


def _rows(identity: str) -> Source:
    return Source(explain.ROWS, identity[:16], identity)


def _table(leaf: Any) -> Source:
    """Return what a table of Spark's second data source interface reads: its files, or the version that it reports."""
    table = leaf.table()
    name = str(table.name())[:_PLACE_LENGTH]
    options = json.dumps(
        sorted((str(e.getKey()), str(e.getValue())) for e in leaf.options().asCaseSensitiveMap().entrySet().toArray())
    )
    if has_member(table, "fileIndex") and has_member(table, "dataSchema"):
        how = (table.getClass().getName(), table.dataSchema().json(), options)
        return _listed(table.fileIndex(), how)
    told = table.version() if has_member(table, "version") else None
    made = table.id() if told and has_member(table, "id") else None  # a table of the same name has another one
    version = " ".join(str(each) for each in (made, told, _snapshot(table)) if each)
    if not version:
        kept = _options(leaf.options().asCaseSensitiveMap())
        asked = digest("table", table.getClass().getName(), str(table.name()), json.dumps(kept))
        return _opaque(f"the table {name} of {table.getClass().getSimpleName()} tells no version", asked, table)
    identity = digest(table.getClass().getName(), str(table.name()), version, options)
    return Source(f"{explain.TABLE} {name}", version[:64], identity)


def _snapshot(table: Any) -> str:
    """Return the snapshot that an Iceberg table has now, its columns and its properties; empty for any other table.

    Iceberg itself tells Spark a version from 1.11, without the columns, and Spark asks for it from 4.1. A table of
    metadata may change without a snapshot.
    """
    if table.getClass().getName() != "org.apache.iceberg.spark.source.SparkTable":
        return ""
    lake, number = table.table(), table.snapshotId()
    if _is_a(lake, "org.apache.iceberg.BaseMetadataTable"):
        return ""
    if number is None:
        snapshot = lake.snapshot(table.branch()) if table.branch() else lake.currentSnapshot()
        number = None if snapshot is None else snapshot.snapshotId()
    properties = sorted((str(each.getKey()), str(each.getValue())) for each in lake.properties().entrySet().toArray())
    return f"snapshot {number} schema {lake.schema().schemaId()} #{digest(json.dumps(properties))[:16]}"


def _is_a(owner: Any, name: str) -> bool:
    """Whether an object's class is, or extends, the one of that name."""
    kind = owner.getClass()
    while kind is not None:
        if kind.getName() == name:
            return True
        kind = kind.getSuperclass()
    return False


def _listed(location: Any, how: tuple[str, ...]) -> Source:
    """Return what an index of files lists."""
    if not has_member(location, "allFiles"):
        return _opaque(f"the files of {location.getClass().getSimpleName()} cannot be listed")
    statuses = location.allFiles()
    listing = statuses.mkString("\n")
    found = [(match["path"], match["size"], match["time"]) for match in FILE_STATUS.finditer(listing)]
    if len(found) != statuses.size():
        return _opaque("the listing of a file source cannot be read")
    return _files([path.toString() for path in items(location.rootPaths())], found, how)


def _files(roots: list[str], found: list[tuple[str, str, str]], how: tuple[str, ...]) -> Source:
    files = FileSet.of(found)
    identity = digest(*how, files.digest)
    shown = replace(files, digest=identity)  # so that it also shows when they are read in another way
    return Source(f"{explain.FILES} {', '.join(roots)[:_PLACE_LENGTH]}", shown.encode(), identity)


def lineage(spark: Any, rdd: Any) -> list[tuple[str, bytes]] | None:
    """Return the kind of each RDD from the top down, with its command or its rows; ``None`` if there is any other.

    :raises Exception: this version of Spark holds them elsewhere
    """
    jvm = jvm_of(spark)
    pending, found = [rdd], list[tuple[str, bytes]]()
    while pending:
        each = pending.pop()
        kind = each.getClass().getSimpleName()
        if kind == "ParallelCollectionRDD":
            rows = jvm.org.apache.spark.util.Utils.serialize(private_field(each, "data"))
            found.append((kind, bytes(rows)))
        elif kind == "PythonRDD":
            command = private_field(each, "func").command()
            found.append((kind, bytes(command.toArray(companion(jvm.scala.reflect, "ClassTag").Byte()))))
        elif kind in _OF_SPARK:
            found.append((kind, b""))
        else:
            return None
        pending += [dependency.rdd() for dependency in items(each.dependencies())]
    return found
