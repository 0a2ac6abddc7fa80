"""The only file source that a DataFrame reads: list its files, and make the DataFrame read a chosen set of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider.spark.jvm.compiled import named_class
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.relation import dataset, rebuilt
from airflow_provider.spark.jvm.scala import companion, has_member, items, sequence_type, to_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PinnedFile: TypeAlias = tuple[str, int, int]
"""Path, size in bytes, modification time in milliseconds since the Unix epoch."""


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """The files of a source at one time.

    :ivar files: in the order of their paths
    :ivar partitions: Spark's ``PartitionSpec``
    """

    files: list[PinnedFile]
    partitions: Any


class FileSource:
    """A DataFrame's only leaf, a relation of files.

    :param leaf: Spark's ``LogicalRelation`` over a ``HadoopFsRelation``
    :ivar session: the DataFrame's
    """

    def __init__(self, df: DataFrame, leaf: Any) -> None:
        self.session: Any = df.sparkSession
        self._df = df
        self._leaf = leaf

    @classmethod
    def of(cls, df: DataFrame) -> FileSource | None:
        """Return the file source of *df*; ``None`` if it reads anything else, or more than one."""
        leaves = list(items(df._jdf.queryExecution().analyzed().collectLeaves()))
        if len(leaves) != 1 or leaves[0].getClass().getSimpleName() != "LogicalRelation":
            return None
        relation = leaves[0].relation()
        if relation.getClass().getSimpleName() != "HadoopFsRelation" or not has_member(relation.location(), "allFiles"):
            return None
        return cls(df, leaves[0])

    @property
    def place(self) -> str:
        """Where it was read from, and how."""
        relation = self._leaf.relation()
        roots = ", ".join(path.toString() for path in items(relation.location().rootPaths()))
        return f"{relation.fileFormat().getClass().getSimpleName()} {roots}"

    def listing(self) -> Listing:
        """Return the files that Spark found when the DataFrame was made."""
        return _listing(self._leaf.relation().location())

    def listed_anew(self) -> Listing | None:
        """Return the current files; ``None`` if there are none, or partitions of other columns, or files that cannot be
        listed again below the same folders.
        """
        relation = self._leaf.relation()
        if relation.location().getClass().getSimpleName() != "InMemoryFileIndex":
            return None
        try:
            columns = relation.partitionSchema()
            none = jvm_of(self.session).scala.Option.empty()
            found = _listing(self._index(relation.location().rootPaths(), columns, none))
        except Exception as error:
            log.debug("The files of %s cannot be listed again", self.place, exc_info=error)
            return None
        same = found.partitions.partitionColumns().json() == columns.json()
        return found if found.files and same else None

    def restricted_to(
        self, listing: Listing, pinned: PinnedFiles | None = None
    ) -> tuple[DataFrame, PinnedFiles | None]:
        """Return a DataFrame that reads only these files, with the same columns and partition values, and an index
        through which it can be made to read others; ``None`` for the index if this version of Spark has no place for
        that.

        :param pinned: of the same source, as another DataFrame reads it
        """
        relation, index = self._leaf.relation(), self.index_of(listing)
        try:
            pinned = pinned or PinnedFiles(self, index)
        except Exception as error:
            log.debug("Files cannot be pinned anew within an attempt", exc_info=error)
        narrowed = relation.copy(
            pinned.index if pinned is not None else index,
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            relation.fileFormat(),
            relation.options(),
            relation.sparkSession(),
        )
        leaf = self._leaf.copy(narrowed, *list(items(self._leaf.productIterator().toSeq()))[1:])
        plan = self._df._jdf.queryExecution().analyzed()
        changed = rebuilt(self.session, plan, lambda node: leaf if node.children().isEmpty() else None)
        return dataset(self.session, changed), pinned

    def index_of(self, listing: Listing) -> Any:
        """Return Spark's index of these files."""
        relation, jvm = self._leaf.relation(), jvm_of(self.session)
        paths = to_seq(jvm, [jvm.org.apache.hadoop.fs.Path(path) for path, _, _ in listing.files])
        return self._index(paths, relation.dataSchema(), jvm.scala.Some(listing.partitions))

    def _index(self, paths: Any, schema: Any, partitions: Any) -> Any:
        jvm = jvm_of(self.session)
        sources = jvm.org.apache.spark.sql.execution.datasources
        return sources.InMemoryFileIndex(
            self.session._jsparkSession,
            paths,
            self._leaf.relation().options(),
            jvm.scala.Some(schema),
            companion(sources, "NoopCache"),
            partitions,
            jvm.scala.Option.empty(),
        )


class PinnedFiles:
    """The files that all DataFrames over a pinned source read.

    :param source: the source
    :param files: an index of its first files
    :ivar index: replaces an index in Spark's plans
    """

    def __init__(self, source: FileSource, files: Any) -> None:
        spark = source.session
        self._source = source
        self.index = named_class(spark, "PinnedFiles", SEQ=sequence_type(spark))(files)

    def pin(self, listing: Listing) -> None:
        """Make all plans that are made from now on read these files."""
        self.index.pin(self._source.index_of(listing))

    def read_by(self, df: DataFrame) -> bool:
        """Whether the plan of *df*, subqueries included, reads this source."""
        same = jvm_of(self._source.session).java.util.IdentityHashMap()
        same.put(self.index, True)
        plan = df._jdf.queryExecution().analyzed()
        for each in (plan, *items(plan.subqueriesAll())):
            for leaf in items(each.collectLeaves()):
                if leaf.getClass().getSimpleName() == "LogicalRelation":
                    relation = leaf.relation()
                    if has_member(relation, "location") and same.containsKey(relation.location()):
                        return True
        return False


def _listing(location: Any) -> Listing:
    statuses = items(location.allFiles())
    files = sorted((s.getPath().toString(), int(s.getLen()), int(s.getModificationTime())) for s in statuses)
    return Listing(files, location.partitionSpec())
