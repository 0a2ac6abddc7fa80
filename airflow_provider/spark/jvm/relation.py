"""Replace a plan by its stored partitions: same schema, same column identities.

``a["id"]`` taken before a checkpoint must still resolve after it. So the relation that reads the partitions (columns
``c0``, ``c1``, …) is projected onto aliases with the original attributes' names, expression ids, qualifiers and
metadata. A subquery alias inside carries the vertex's token, which shows a plan built on top what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider.core.vertex_token import VERTEX_ALIAS, vertex_of
from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.plan_walk import vertex_token
from airflow_provider.spark.jvm.scala import companion, items, to_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
COLUMNAR_INPUT_HANGS = "4.2."
"""Spark 4.2.0 hangs when a Python UDF reads a Parquet scan's columns directly. A script whose UDF read a shuffle must
not hit that because a checkpoint put a scan there, so that scan returns rows.
"""
_BATCHES = "spark.sql.codegen.wholeStage"
"""Without it, a scan returns rows. The scan asks the session of its relation; nothing else in the plan asks that one.
"""


def dataset(spark: Any, plan: Any) -> DataFrame:
    """Return a Python DataFrame over a logical plan."""
    return data_frame(spark, _datasets(spark).ofRows(spark._jsparkSession, plan))


def _datasets(spark: Any) -> Any:
    package = jvm_of(spark).org.apache.spark.sql
    return package.classic.Dataset if spark.version >= "4" else package.Dataset


def data_frame(spark: Any, java_frame: Any) -> DataFrame:
    """Return the Python side of a JVM DataFrame."""
    from pyspark.sql import DataFrame

    return DataFrame(java_frame, spark)


def renewed(df: DataFrame) -> DataFrame:
    """Return *df* as a query that has not started: an adaptive plan does not recover from a failure."""
    return dataset(df.sparkSession, df._jdf.queryExecution().analyzed())


def lead(df: DataFrame, other: DataFrame) -> None:
    """Replace the query of a frame that the script holds by that of another one."""
    df._jdf = other._jdf


def cached_below(df: DataFrame) -> list[Any]:
    """Return the cached frames that *df* reads, as Spark's ``InMemoryRelation``.

    The frame itself is not asked: its query would remember what is cached now, or is not cached yet.
    """
    return cached_in(renewed(df)._jdf.queryExecution())


def cached_in(execution: Any) -> list[Any]:
    """Return the cached frames that a query reads; the query remembers them."""
    plan, found = execution.withCachedData(), list[Any]()
    pending = [plan, *items(plan.subqueriesAll())]
    while pending:
        node = pending.pop()
        pending += items(node.children())
        if node.getClass().getSimpleName() == "InMemoryRelation":
            found.append(node)
    return found


def cached_as(df: DataFrame) -> Any:
    """Return the ``InMemoryRelation`` that caches all of *df*, which the script has just cached; ``None`` if there is
    none.
    """
    spark: Any = df.sparkSession
    found = spark._jsparkSession.sharedState().cacheManager().lookupCachedData(df._jdf)
    return found.get().cachedRepresentation() if found.isDefined() else None


def unsliced(df: DataFrame, ranges: Set[int]) -> DataFrame:
    """Return *df* with the number of slices of its ranges left to Spark's planner, so that a retry can pin it.

    :param ranges: expression ids of the ranges for which the script gave no number
    """
    spark: Any = df.sparkSession
    none = jvm_of(spark).scala.Option.empty()

    def change(node: Any) -> Any:
        if node.getClass().getSimpleName() != "Range" or int(node.output().head().exprId().id()) not in ranges:
            return None
        return node.copy(node.start(), node.end(), node.step(), none, node.output(), node.isStreaming())

    plan = df._jdf.queryExecution().analyzed()
    if not ranges or not any(leaf.getClass().getSimpleName() == "Range" for leaf in items(plan.collectLeaves())):
        return df
    if cached_below(df):  # Spark finds cached frames by their plan
        return df
    try:
        changed = rebuilt(spark, plan, change)
    except RecursionError:  # a plan of a thousand nodes: keep the script's splits
        return df
    return df if changed is plan else dataset(spark, changed)


def rebuilt(spark: Any, node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a plan with some of its nodes changed; the same object if none is.

    :param change: returns a replacement for a node and everything below it; ``None`` to look further down
    """
    changed = change(node)
    if changed is not None:
        return changed
    children = list(items(node.children()))
    new = [rebuilt(spark, child, change) for child in children]
    if all(child is before for child, before in zip(new, children, strict=True)):
        return node
    return node.withNewChildren(to_seq(jvm_of(spark), new))


def apart(df: DataFrame) -> DataFrame:
    """Return *df* with a plan that has its own aliases for the vertices that it reads.

    Holding this plan does not keep the objects that show that the script can still use the vertices (see
    ``live_plans``).
    """
    spark: Any = df.sparkSession
    logical, jvm = _logical(spark), jvm_of(spark)
    identifier = jvm.org.apache.spark.sql.catalyst.AliasIdentifier

    def rebuild(node: Any) -> Any:
        children = list(items(node.children()))
        rebuilt = [rebuild(child) for child in children]
        if node.getClass().getSimpleName() == "SubqueryAlias":
            name = str(node.identifier().name())
            if name.startswith(VERTEX_ALIAS):
                alias = logical.SubqueryAlias(identifier(name, to_seq(jvm, [])), rebuilt[0])
                alias.copyTagsFrom(node)
                return alias
        if all(new is old for new, old in zip(rebuilt, children, strict=True)):
            return node
        # withNewChildren would keep the old ones, which are equal.
        copied = node.withNewChildrenInternal(to_seq(jvm, rebuilt).toVector())
        copied.copyTagsFrom(node)
        return copied

    plan = df._jdf.queryExecution().analyzed()
    try:
        rebuilt = rebuild(plan)
    except RecursionError:  # a plan of a thousand nodes: what it reads stays as long as the job runs
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
        # withNewChildren would keep the old ones: to Spark, relations of files are equal in any session.
        copied = node.withNewChildrenInternal(to_seq(jvm_of(spark), rebuilt).toVector())
        copied.copyTagsFrom(node)
        return copied

    plan = df._jdf.queryExecution().analyzed()
    with suppress(RecursionError):  # a plan of a thousand nodes: its files stay in their session
        plan = rebuild(plan)
    return data_frame(spark, _datasets(spark).ofRows(session, plan))


def _file_relation(relation: Any, schema: Any, session: Any, files: Any = None) -> Any:
    """Return a relation of files with another schema, in another session.

    :param files: Spark's index of other files
    """
    return relation.copy(
        files or relation.location(),
        relation.partitionSchema(),
        schema,
        relation.bucketSpec(),
        relation.fileFormat(),
        relation.options(),
        session,
    )


def _by_rows(session: Any) -> Any:
    """Return a session for relations of files whose scans return rows, not batches; plans do not belong to it.

    A copy, because a setting of the session itself would be the script's. The scan still reads many values at once.
    """
    copy = session.cloneSession()
    copy.conf().set(_BATCHES, "false")
    return copy


def _gives_rows(session: Any) -> bool:
    return str(session.conf().get(_BATCHES)) == "false"


def as_vertex(df: Any, source: Any, token: str) -> DataFrame:
    """Return a DataFrame with the rows of *source* that can replace *df* anywhere.

    :param df: what the user's script has; gives names, identities, qualifiers, metadata
    :param source: DataFrame with the same columns by position; may be *df* itself (nothing stored, still one vertex)
    :param token: represents everything below in the fingerprints of plans built on top
    """
    spark = df.sparkSession
    wanted = list(items(df._jdf.queryExecution().analyzed().output()))
    plan = source._jdf.queryExecution().analyzed()
    given = list(items(plan.output()))
    empty = to_seq(jvm_of(spark), [])
    columns = wanted
    if source is not df:
        columns = [
            alias(jvm_of(spark), mine, old.name(), old.exprId(), old.qualifier(), old.metadata())
            for old, mine in zip(wanted, given, strict=True)
        ]
    identifier = jvm_of(spark).org.apache.spark.sql.catalyst.AliasIdentifier
    plan = _logical(spark).SubqueryAlias(identifier(VERTEX_ALIAS + token, empty), plan)
    return dataset(spark, _logical(spark).Project(to_seq(jvm_of(spark), columns), plan))


def _logical(spark: Any) -> Any:
    return jvm_of(spark).org.apache.spark.sql.catalyst.plans.logical


def vertex_at(df: DataFrame) -> str | None:
    """Return the token of the vertex that *df* is; ``None`` if it is none."""
    return vertex_token(df.sparkSession, df._jdf.queryExecution().analyzed())


def vertices_below(df: DataFrame) -> list[str]:
    """Return the tokens of the vertices that *df* reads, except for those inside subquery expressions."""
    spark: Any = df.sparkSession
    pending, found = [df._jdf.queryExecution().analyzed()], dict[str, None]()
    while pending:
        node = pending.pop()
        token = vertex_token(spark, node)
        if token is None:
            pending += items(node.children())
        else:
            found[token] = None
    return list(found)


def with_sources(
    df: DataFrame, sources: Mapping[str, Callable[[], DataFrame]], tokens: Mapping[str, str] | None = None
) -> DataFrame:
    """Return *df* with other sources below the vertices that it reads.

    Vertices inside subquery expressions keep their source: a plan's expressions are not rebuilt.

    :param sources: vertex → function that makes a DataFrame with the same columns by position, a new one at each call
    :param tokens: vertex → the token of the one that replaces it
    """
    spark: Any = df.sparkSession
    logical = _logical(spark)

    def change(node: Any) -> Any:
        token = vertex_token(spark, node)
        if token is None or vertex_of(token) not in sources:
            return None
        alias = node.child()
        plan = sources[vertex_of(token)]()._jdf.queryExecution().analyzed()
        identifier = alias.identifier()
        if tokens and vertex_of(token) in tokens:
            identifier = identifier.copy(VERTEX_ALIAS + tokens[vertex_of(token)], identifier.qualifier())
        named = logical.Project(renamed(spark, alias.child().output(), plan.output()), plan)
        return node.withNewChildren(to_seq(jvm_of(spark), [logical.SubqueryAlias(identifier, named)]))

    plan = df._jdf.queryExecution().analyzed()
    changed = rebuilt(spark, plan, change)
    return df if changed is plan else dataset(spark, changed)


def renamed(spark: Any, columns: Any, given: Any) -> Any:
    """Return the columns *given*, each under the name and identity of the one of *columns* at its position."""
    jvm, pairs = jvm_of(spark), zip(items(columns), items(given), strict=True)
    return to_seq(jvm, [alias(jvm, new, old.name(), old.exprId()) for old, new in pairs])


def alias(jvm: Any, column: Any, name: str, identity: Any = None, qualifier: Any = None, metadata: Any = None) -> Any:
    """Return an expression under a name.

    :param identity: its expression id; a new one if ``None``
    """
    expressions, empty = jvm.org.apache.spark.sql.catalyst.expressions, to_seq(jvm, [])
    number = expressions.NamedExpression.newExprId() if identity is None else identity
    own = jvm.scala.Option.apply(metadata)
    return expressions.Alias(column, name, number, empty if qualifier is None else qualifier, own, empty)


def native_relation(spark: Any, folder: str, files: Mapping[str, int], schema: Any) -> DataFrame:
    """Return a DataFrame that reads Parquet files with Spark's own reader, with the nullability of *schema*.

    Spark lists none of the files: for many files it would do so in a job of as many tasks. Options guard against
    session settings that would skip damaged files or shift old dates.

    :param files: name below *folder* → bytes
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
    relation = reader.parquet(f"{folder}/{next(iter(files))}")._jdf.queryExecution().analyzed().relation()
    struct = jvm_of(spark).org.apache.spark.sql.types.DataType.fromJson(schema.json())
    hangs = spark.version.startswith(COLUMNAR_INPUT_HANGS) and spark.conf.get(COLUMNAR_INPUT) == "true"
    owner = _by_rows(relation.sparkSession()) if hangs else relation.sparkSession()
    exact = _file_relation(relation, struct, owner, _index_of(spark, folder, files, relation.options()))
    return data_frame(spark, spark._jsparkSession.baseRelationToDataFrame(exact))


def _index_of(spark: Any, folder: str, files: Mapping[str, int], options: Any) -> Any:
    """Return Spark's index of files of which everything is known."""
    jvm = jvm_of(spark)
    sources, none = jvm.org.apache.spark.sql.execution.datasources, jvm.scala.Option.empty()
    lines = "\n".join(f"{name} {size}" for name, size in files.items())
    known = compiled(spark, "StoredFiles", str).of(spark._jsc.hadoopConfiguration(), folder, lines)
    paths = jvm.org.apache.spark.api.python.PythonUtils.toSeq(known.paths())
    unpartitioned = jvm.scala.Some(companion(sources, "PartitionSpec").emptySpec())
    return sources.InMemoryFileIndex(spark._jsparkSession, paths, options, none, known, unpartitioned, none)


def written_by_jvm(spark: Any, path: str, content: str) -> bool:
    """Write a small file with the JVM's Hadoop file systems; return whether that worked."""
    try:
        hadoop_path = jvm_of(spark).org.apache.hadoop.fs.Path(path)
        file = hadoop_path.getFileSystem(spark._jsc.hadoopConfiguration()).create(hadoop_path, True)
        file.write(content.encode())
        file.close()
    except Exception:  # noqa: BLE001 - as in readable_by_jvm
        return False
    return True


def readable_by_jvm(spark: Any, path: str) -> bool:
    """Whether the JVM's Hadoop file systems can see *path*."""
    try:
        hadoop_path = jvm_of(spark).org.apache.hadoop.fs.Path(path)
        system = hadoop_path.getFileSystem(spark._jsc.hadoopConfiguration())
        return bool(system.exists(hadoop_path))
    except Exception:  # noqa: BLE001 - no such file system, no credentials, no network: each means "not this way"
        return False
