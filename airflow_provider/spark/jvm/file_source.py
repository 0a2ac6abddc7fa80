"""The one file source that a DataFrame reads: list its files, and read only some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import companion, has_member, items, to_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PinnedFile: TypeAlias = tuple[str, int, int]
"""Path, size in bytes, modification time in milliseconds since the Unix epoch."""


class FileSource:
    """A DataFrame's only leaf, a relation of files.

    :param leaf: Spark's ``LogicalRelation`` over a ``HadoopFsRelation``
    """

    def __init__(self, df: DataFrame, leaf: Any) -> None:
        self._spark: Any = df.sparkSession
        self._df = df
        self._leaf = leaf

    @classmethod
    def of(cls, df: DataFrame) -> FileSource | None:
        """Return the file source of *df*, ``None`` if it reads anything else or more than one."""
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

    def listing(self) -> list[PinnedFile]:
        """Return all files, in the order of their paths."""
        statuses = items(self._leaf.relation().location().allFiles())
        return sorted((s.getPath().toString(), int(s.getLen()), int(s.getModificationTime())) for s in statuses)

    def restricted_to(self, files: list[PinnedFile]) -> DataFrame:
        """Return the DataFrame reading only *files*, with the same columns and partition values."""
        relation = self._leaf.relation()
        location = relation.location()
        jvm = self._spark._jvm
        execution = jvm.org.apache.spark.sql.execution
        some, none = jvm.scala.Some, jvm.scala.Option.empty
        paths = [jvm.org.apache.hadoop.fs.Path(path) for path, _, _ in files]
        index = execution.datasources.InMemoryFileIndex(
            self._spark._jsparkSession,
            to_seq(jvm, paths),
            relation.options(),
            some(relation.dataSchema()),
            companion(execution.datasources, "NoopCache"),
            some(location.partitionSpec()),
            none(),
        )
        narrowed = relation.copy(
            index,
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            relation.fileFormat(),
            relation.options(),
            relation.sparkSession(),
        )
        leaf = self._leaf.copy(narrowed, *list(items(self._leaf.productIterator().toSeq()))[1:])
        plan = self._df._jdf.queryExecution().analyzed()
        return dataset(self._spark, self._with_leaf(plan, leaf))

    def _with_leaf(self, node: Any, leaf: Any) -> Any:
        children = list(items(node.children()))
        if not children:
            return leaf
        rebuilt = [self._with_leaf(child, leaf) for child in children]
        return node.withNewChildren(to_seq(self._spark._jvm, rebuilt))
