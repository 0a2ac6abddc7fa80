"""Describe an analyzed plan so exactly that two equal descriptions mean equal results.

Spark offers no stable identity of a plan: ``semanticHash`` differs from one JVM to the next and tree strings are cut
and leave out literal types, files and functions. So the description is put together from the plan's JSON (all
constructor fields, literals with their types; expression ids renumbered), each node's own line (what JSON leaves
out), the files of each scan (path, size, modification time), the rows of local relations, and the bytes of each
Python function. A recovery point further down stands for itself: below it nothing is looked at.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.spark.jvm.relation import VERTEX_ALIAS, dataset, vertex_token
from airflow_provider.spark.jvm.scala import items
from airflow_provider.spark.recovery_point import fingerprint_of

_PLAN_PACKAGES = (
    "org.apache.spark.sql.catalyst.expressions.",
    "org.apache.spark.sql.catalyst.plans.",
    "org.apache.spark.sql.catalyst.analysis.",
    "org.apache.spark.sql.execution.datasources.LogicalRelation",
    "org.apache.spark.sql.execution.LogicalRDD",
    "org.apache.spark.sql.types.",
)
"""Nodes from elsewhere (data sources of third parties, typed Scala closures) are opaque."""

_OPAQUE = {
    "ScalaUDF": "a JVM function",
    "ScalarSubqueryReference": "a bound subquery",
    "TypedFilter": "a typed JVM function",
    "MapElements": "a typed JVM function",
    "MapPartitions": "a typed JVM function",
    "MapGroups": "a typed JVM function",
    "FlatMapGroupsWithState": "a typed JVM function",
    "CoGroup": "a typed JVM function",
    "AppendColumns": "a typed JVM function",
    "ApplyFunctionExpression": "a data source's function",
    "CallMethodViaReflection": "a Java method",
    "TryReflect": "a Java method",
    "InvokeLike": "a Java method",
}

NOT_DETERMINISTIC = {
    "CurrentTimestamp",
    "CurrentTimestampLike",
    "CurrentDate",
    "CurrentTime",
    "LocalTimestamp",
    "Now",
    "CurrentBatchTimestamp",
    "Uuid",
    "Shuffle",
    "MonotonicallyIncreasingID",
    "SparkPartitionID",
    "InputFileName",
    "InputFileBlockStart",
    "InputFileBlockLength",
    "First",
    "Last",
    "AnyValue",
    "NthValue",
    "CollectList",
    "CollectSet",
    "ListAgg",
    "Mode",
    "MaxBy",
    "MinBy",
    "ApproximatePercentile",
    "PercentileHeap",
    "RowNumber",
    "NTile",
    "Lag",
    "Lead",
    "Sample",
    "GlobalLimit",
    "LocalLimit",
    "Limit",
    "Offset",
    "Tail",
    "LimitAll",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Repartition",
    "RebalancePartitions",
}
"""Expressions and nodes whose result can differ between two runs over the same input, or depends on row order."""

_FILE_STATUS = re.compile(
    r"\bpath=(?P<path>.*?); isDirectory=.*?\blength=(?P<size>\d+);.*?modification_time=(?P<time>\d+)"
)
_SESSION_ID = re.compile(r"(#|\bCTERelation(?:Def|Ref) )(\d+)")
"""Ids that a session counts up: of expressions and of common table expressions."""


def digest(*texts: str) -> str:
    """Return a SHA-256 in hexadecimal over *texts*, which cannot run into one another."""
    sha = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()


@dataclass
class PlanDescription:
    """What is known of a plan.

    :ivar parts: named digests; together they are the fingerprint, apart they tell what changed
    :ivar upstream: tokens of the recovery points that the plan reads, in the order of the plan
    :ivar opaque: reasons why nothing may be reused; empty if everything is described
    :ivar not_deterministic: what makes the plan's result vary from run to run; empty if nothing does
    """

    parts: dict[str, str] = field(default_factory=dict)
    upstream: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    not_deterministic: list[str] = field(default_factory=list)
    has_python: bool = False


class PlanDescriber:
    """Describes plans of one session.

    :param spark: the session
    :param local_data: RDD id → digest of the rows that the script gave to ``createDataFrame``
    """

    def __init__(self, spark: Any, local_data: dict[int, str]) -> None:
        self._spark = spark
        self._jvm = spark._jvm
        self._local_data = local_data
        patterns = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        self._python_patterns = [patterns.PYTHON_UDF(), patterns.GENERATOR()]  # a Python UDTF is a generator

    def describe(self, df: Any) -> PlanDescription:
        """Return the description of *df*'s analyzed plan."""
        plan = df._jdf.queryExecution().analyzed()
        description = PlanDescription()
        ids: dict[str, int] = {}
        lines: list[str] = []
        self._walk(plan, 0, lines, description)
        structure = self._structure(plan, ids, description)
        text = _SESSION_ID.sub(lambda match: f"{match[1]}{_number(match[1][0] + match[2], ids)}", "\n".join(lines))
        description.parts["plan"] = digest(structure, text)
        description.parts["schema"] = digest(df.schema.json())
        if not plan.deterministic():
            description.not_deterministic.append("the plan holds a non-deterministic expression")
        return description

    # -- structure: the plan's JSON -------------------------------------------------------------------------------

    def _structure(self, plan: Any, ids: dict[str, int], description: PlanDescription) -> str:
        nodes = json.loads(plan.toJSON())
        kept = _without_vertices(nodes)
        for class_name in _class_names(kept):
            name = class_name.rsplit(".", 1)[-1].rstrip("$")
            if name in _OPAQUE:
                description.opaque.append(f"{_OPAQUE[name]} ({name}) cannot be fingerprinted")
            elif not class_name.startswith(_PLAN_PACKAGES):
                description.opaque.append(f"{name} is not known to recovery")
            if name in NOT_DETERMINISTIC:
                description.not_deterministic.append(name)
        return json.dumps(_renumber(kept, ids), sort_keys=True, separators=(",", ":"))

    # -- what JSON leaves out: each node's line, files, rows, functions ------------------------------------------

    def _walk(self, node: Any, depth: int, lines: list[str], description: PlanDescription) -> None:
        name = node.getClass().getSimpleName()
        token = vertex_token(node) if name == "Project" else None
        if token is not None:
            description.upstream.append(token)
            lines.append(f"{depth} vertex {fingerprint_of(token)}")
            return
        lines.append(f"{depth} {node.simpleString(2**31 - 1)}")
        if any(node.containsPattern(pattern) for pattern in self._python_patterns):
            for expression in items(node.expressions()):
                self._functions(expression, description)
        children = list(items(node.children()))
        if not children:
            self._leaf(node, name, len(lines), description)
        for subplan in items(node.subqueries()):
            self._walk(subplan, depth + 1, lines, description)
        for child in children:
            self._walk(child, depth + 1, lines, description)

    def _leaf(self, node: Any, name: str, position: int, description: PlanDescription) -> None:
        readers: dict[str, Callable[[Any, str, PlanDescription], None]] = {
            "LogicalRelation": self._files,
            "LocalRelation": self._rows,
            "LogicalRDD": self._rdd,
        }
        if name in readers:
            readers[name](node, f"{position}", description)
        elif name not in ("Range", "OneRowRelation", "OneRowRelation$", "CTERelationRef"):
            description.opaque.append(f"the source {node.nodeName()} cannot be fingerprinted")

    def _files(self, node: Any, position: str, description: PlanDescription) -> None:
        relation = node.relation()
        if relation.getClass().getSimpleName() != "HadoopFsRelation":
            description.opaque.append(f"the source {relation.getClass().getSimpleName()} has no version to compare")
            return
        location = relation.location()
        if not hasattr(location, "allFiles"):
            description.opaque.append(f"the files of {location.getClass().getSimpleName()} cannot be listed")
            return
        listing = location.allFiles().mkString("\n")
        files = [(m["path"], m["size"], m["time"]) for m in _FILE_STATUS.finditer(listing)]
        if len(files) != listing.count("path=") or len(files) != location.allFiles().size():
            description.opaque.append("the listing of a file source cannot be read")
            return
        how = (
            relation.fileFormat().getClass().getName(),
            relation.dataSchema().json(),
            relation.partitionSchema().json(),
            json.dumps(sorted((str(pair._1()), str(pair._2())) for pair in items(relation.options().toSeq()))),
        )
        roots = ", ".join(path.toString() for path in items(location.rootPaths()))
        described = digest(*how, *(field for file in sorted(files) for field in file))
        description.parts[f"files {position} {roots[:200]}"] = described

    def _rows(self, node: Any, position: str, description: PlanDescription) -> None:
        rows = dataset(self._spark, node).collect()
        description.parts[f"rows {position}"] = digest(*(repr(row) for row in rows))

    def _rdd(self, node: Any, position: str, description: PlanDescription) -> None:
        known = self._local_data.get(node.rdd().id())
        if known is None:
            description.opaque.append("an RDD cannot be fingerprinted")
        else:
            description.parts[f"rows {position}"] = known

    def _functions(self, expression: Any, description: PlanDescription) -> None:
        name = expression.getClass().getSimpleName()
        if name in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
            description.has_python = True
            code = bytes(int(number) % 256 for number in expression.func().command().mkString(",").split(",") if number)
            label = f"function {expression.name()}"
            if b"_from_id" in code or b"pyspark.core.broadcast" in code or b"pyspark.broadcast" in code:
                description.opaque.append(f"{label} uses a broadcast variable, or is larger than 1 MiB")
            description.parts[label] = digest(description.parts.get(label, ""), hashlib.sha256(code).hexdigest())
            deterministic = getattr(expression, "udfDeterministic", None)
            if deterministic is not None and not deterministic():
                description.not_deterministic.append(label)
        for child in items(expression.children()):
            if any(child.containsPattern(pattern) for pattern in self._python_patterns):
                self._functions(child, description)


def _without_vertices(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put, in a pre-order list of nodes, one leaf in the place of each recovery point.

    The leaf keeps the names and ids of its columns: what lies above refers to them. It is the same whether the
    recovery point was read back, computed just now, or left to be computed.
    """
    kept: list[dict[str, Any]] = []
    skip = 0
    for node, child in zip(nodes, [*nodes[1:], {}], strict=True):
        if skip:
            skip += node["num-children"] - 1
            continue
        alias = str((child.get("identifier") or {}).get("name", ""))
        if node["class"].endswith(".Project") and alias.startswith(VERTEX_ALIAS):
            skip = node["num-children"]
            columns = [{"name": column[0]["name"], "exprId": column[0]["exprId"]} for column in node["projectList"]]
            kept.append({"vertex": fingerprint_of(alias), "columns": columns})
            continue
        kept.append({key: _inner(value) for key, value in node.items()})
    return kept


def _inner(value: Any) -> Any:
    """Apply :func:`_without_vertices` to plans inside expressions (subqueries)."""
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and "num-children" in value[0]:
            return _without_vertices(value)
        return [_inner(item) for item in value]
    return value


def _class_names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("class"), str) and "num-children" in value:
            yield value["class"]
        for item in value.values():
            yield from _class_names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _class_names(item)


def _renumber(value: Any, ids: dict[str, int]) -> Any:
    """Replace what a session counts up by its order of appearance: it differs from one run to the next."""
    if isinstance(value, dict):
        if str(value.get("product-class", "")).endswith(".ExprId"):
            return _number(f"#{value['id']}", ids)
        cte = {"CTERelationDef": "id", "CTERelationRef": "cteId"}.get(str(value.get("class", "")).rsplit(".", 1)[-1])
        return {key: _number(f"C{item}", ids) if key == cte else _renumber(item, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [_renumber(item, ids) for item in value]
    return value


def _number(name: str, ids: dict[str, int]) -> int:
    return ids.setdefault(name, len(ids))
