"""Put stored partitions in the place of a plan: same schema, same column identities.

``a["id"]`` taken before a checkpoint must still resolve after it. So the relation that reads the partitions (columns
``c0``, ``c1``, …) is projected onto aliases that carry the original attributes' names, expression ids, qualifiers and
metadata. Inside stands a subquery alias with the vertex's token, by which a plan further down is known to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider.core.vertex_token import VERTEX_ALIAS, vertex_of
from airflow_provider.spark.jvm.plan_walk import vertex_token
from airflow_provider.spark.jvm.scala import items, to_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
COLUMNAR_INPUT_HANGS = "4.2."
"""Spark 4.2.0 waits for ever when a Python UDF reads a Parquet scan's columns directly. A script whose UDF read a
shuffle must not meet that because a checkpoint put a scan in its place, so that scan gives rows."""
_BATCHES = "spark.sql.codegen.wholeStage"
"""Without it, a scan gives rows; it asks the session of its relation, and nothing else of the plan asks that one."""


def dataset(spark: Any, plan: Any) -> DataFrame:
    """Return a Python DataFrame over a logical plan."""
    return data_frame(spark, _datasets(spark).ofRows(spark._jsparkSession, plan))


def _datasets(spark: Any) -> Any:
    package = spark._jvm.org.apache.spark.sql
    return package.classic.Dataset if spark.version >= "4" else package.Dataset


def data_frame(spark: Any, java_frame: Any) -> DataFrame:
    """Return the Python side of a DataFrame of the JVM."""
    from pyspark.sql import DataFrame

    return DataFrame(java_frame, spark)


def cached_below(df: DataFrame) -> list[Any]:
    """Return what the script has cached and *df* reads, as Spark's ``InMemoryRelation``."""
    pending, found = [df._jdf.queryExecution().withCachedData()], list[Any]()
    while pending:
        node = pending.pop()
        pending += items(node.children())
        if node.getClass().getSimpleName() == "InMemoryRelation":
            found.append(node)
    return found


def cached_as(df: DataFrame) -> Any:
    """Return the ``InMemoryRelation`` as which all of *df* is cached; ``None`` if it is not.

    The frame itself is not asked: it would hold on to what is cached now.
    """
    spark: Any = df.sparkSession
    plan = dataset(spark, df._jdf.queryExecution().analyzed())._jdf.queryExecution().withCachedData()
    return plan if plan.getClass().getSimpleName() == "InMemoryRelation" else None


def unsliced(df: DataFrame, ranges: Set[int]) -> DataFrame:
    """Return *df* with the number of slices of its ranges left to Spark's planner, so that a retry can pin it.

    :param ranges: expression ids of the ranges whose number the script did not give
    """
    spark: Any = df.sparkSession
    none = spark._jvm.scala.Option.empty()

    def rebuild(node: Any) -> Any:
        children = list(items(node.children()))
        if not children and node.getClass().getSimpleName() == "Range":
            if int(node.output().head().exprId().id()) not in ranges:
                return node
            return node.copy(node.start(), node.end(), node.step(), none, node.output(), node.isStreaming())
        rebuilt = [rebuild(child) for child in children]
        if all(new is old for new, old in zip(rebuilt, children, strict=True)):
            return node
        return node.withNewChildren(to_seq(spark._jvm, rebuilt))

    plan = df._jdf.queryExecution().analyzed()
    if not ranges or not any(leaf.getClass().getSimpleName() == "Range" for leaf in items(plan.collectLeaves())):
        return df
    if cached_below(df):  # Spark finds what it has cached by its plan
        return df
    try:
        rebuilt = rebuild(plan)
    except RecursionError:  # a plan of a thousand nodes: it is cut as the script has it
        return df
    return df if rebuilt is plan else dataset(spark, rebuilt)


def in_session(df: DataFrame, session: Any) -> DataFrame:
    """Return *df* with a plan that belongs to another session of the JVM, relations of files included.

    :param session: has the same catalog, cache and functions: a clone
    """
    spark: Any = df.sparkSession

    def rebuild(node: Any) -> Any:
        children = list(items(node.children()))
        if not children and node.getClass().getSimpleName() == "LogicalRelation":
            relation = node.relation()
            if relation.getClass().getSimpleName() != "HadoopFsRelation":
                return node
            owner = _by_rows(session) if _gives_rows(relation.sparkSession()) else session
            others = (node.productElement(place) for place in range(1, node.productArity()))
            return node.copy(_file_relation(relation, relation.dataSchema(), owner), *others)
        rebuilt = [rebuild(child) for child in children]
        if all(new is old for new, old in zip(rebuilt, children, strict=True)):
            return node
        # withNewChildren would keep the old ones: Spark takes a relation of files for equal in whichever session.
        copied = node.withNewChildrenInternal(to_seq(spark._jvm, rebuilt).toVector())
        copied.copyTagsFrom(node)
        return copied

    plan = df._jdf.queryExecution().analyzed()
    with suppress(RecursionError):  # a plan of a thousand nodes: its files stay in their session
        plan = rebuild(plan)
    return data_frame(spark, _datasets(spark).ofRows(session, plan))


def _file_relation(relation: Any, schema: Any, session: Any) -> Any:
    """Return a relation of files with another schema, in another session."""
    return relation.copy(
        relation.location(),
        relation.partitionSchema(),
        schema,
        relation.bucketSpec(),
        relation.fileFormat(),
        relation.options(),
        session,
    )


def _by_rows(session: Any) -> Any:
    """Return a session for relations of files whose scans give rows, not batches; plans do not belong to it.

    A copy, because a setting of the session itself would be the script's. The scan still reads many values at once.
    """
    copy = session.cloneSession()
    copy.conf().set(_BATCHES, "false")
    return copy


def _gives_rows(session: Any) -> bool:
    return str(session.conf().get(_BATCHES)) == "false"


def as_vertex(df: Any, source: Any, token: str) -> DataFrame:
    """Return a DataFrame with the rows of *source* that stands wherever *df* stood.

    :param df: what the user's script has; gives names, identities, qualifiers, metadata
    :param source: DataFrame with the same columns by position; may be *df* itself (nothing stored, still one vertex)
    :param token: what a plan further down is fingerprinted with in place of everything below
    """
    spark = df.sparkSession
    expressions = spark._jvm.org.apache.spark.sql.catalyst.expressions
    wanted = list(items(df._jdf.queryExecution().analyzed().output()))
    plan = source._jdf.queryExecution().analyzed()
    given = list(items(plan.output()))
    empty = to_seq(spark._jvm, [])
    columns = wanted
    if source is not df:
        columns = [
            expressions.Alias(
                mine,
                original.name(),
                original.exprId(),
                original.qualifier(),
                spark._jvm.scala.Some(original.metadata()),
                empty,
            )
            for original, mine in zip(wanted, given, strict=True)
        ]
    identifier = spark._jvm.org.apache.spark.sql.catalyst.AliasIdentifier
    plan = _logical(spark).SubqueryAlias(identifier(VERTEX_ALIAS + token, empty), plan)
    return dataset(spark, _logical(spark).Project(to_seq(spark._jvm, columns), plan))


def _logical(spark: Any) -> Any:
    return spark._jvm.org.apache.spark.sql.catalyst.plans.logical


def with_sources(df: DataFrame, sources: Mapping[str, Callable[[], DataFrame]]) -> DataFrame:
    """Return *df* with other sources below the vertices that it reads.

    Vertices inside of subquery expressions keep their source: a plan's expressions are not rebuilt.

    :param sources: vertex → makes a DataFrame with the same columns by position, another one at each call
    """
    spark: Any = df.sparkSession
    logical = _logical(spark)

    def rebuild(node: Any) -> Any:
        token = vertex_token(spark, node)
        if token is not None and vertex_of(token) in sources:
            alias = node.child()
            plan = sources[vertex_of(token)]()._jdf.queryExecution().analyzed()
            inner = logical.SubqueryAlias(alias.identifier(), in_the_place_of(spark, alias.child().output(), plan))
            return node.withNewChildren(to_seq(spark._jvm, [inner]))
        children = list(items(node.children()))
        rebuilt = [rebuild(child) for child in children]
        if all(new is old for new, old in zip(rebuilt, children, strict=True)):
            return node
        return node.withNewChildren(to_seq(spark._jvm, rebuilt))

    plan = df._jdf.queryExecution().analyzed()
    rebuilt = rebuild(plan)
    return df if rebuilt is plan else dataset(spark, rebuilt)


def in_the_place_of(spark: Any, columns: Any, plan: Any) -> Any:
    """Return *plan* with its columns under the names and identities of *columns*, which it has by position."""
    return _logical(spark).Project(renamed(spark, columns, plan.output()), plan)


def renamed(spark: Any, columns: Any, given: Any) -> Any:
    """Return the columns *given*, each under the name and identity of the one of *columns* at its position."""
    alias = spark._jvm.org.apache.spark.sql.catalyst.expressions.Alias
    empty, nothing = to_seq(spark._jvm, []), spark._jvm.scala.Option.empty()
    aliases = [
        alias(new, old.name(), old.exprId(), empty, nothing, empty)
        for old, new in zip(items(columns), items(given), strict=True)
    ]
    return to_seq(spark._jvm, aliases)


def native_relation(spark: Any, paths: list[str], schema: Any) -> DataFrame:
    """Return a DataFrame that reads Parquet files with Spark's own reader, keeping *schema*'s nullability.

    Options guard against session settings that would skip damaged files or shift old dates.
    """
    reader = spark.read.schema(schema)
    for name, value in {
        "ignoreCorruptFiles": "false",
        "ignoreMissingFiles": "false",
        "mergeSchema": "false",
        "recursiveFileLookup": "false",
        "datetimeRebaseMode": "CORRECTED",
        "int96RebaseMode": "CORRECTED",
        "parquet.page.verify-checksum.enabled": "true",
    }.items():
        reader = reader.option(name, value)
    logical = reader.parquet(*paths)._jdf.queryExecution().analyzed()
    relation = logical.relation()
    struct = spark._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    hangs = spark.version.startswith(COLUMNAR_INPUT_HANGS) and spark.conf.get(COLUMNAR_INPUT) == "true"
    owner = _by_rows(relation.sparkSession()) if hangs else relation.sparkSession()
    exact = _file_relation(relation, struct, owner)
    return data_frame(spark, spark._jsparkSession.baseRelationToDataFrame(exact))


def readable_by_jvm(spark: Any, path: str) -> bool:
    """Whether the JVM's Hadoop file systems can see *path*."""
    try:
        hadoop_path = spark._jvm.org.apache.hadoop.fs.Path(path)
        system = hadoop_path.getFileSystem(spark._jsc.hadoopConfiguration())
        return bool(system.exists(hadoop_path))
    except Exception:  # noqa: BLE001 - no such file system, no credentials, no network: each means "not this way"
        return False
