"""Describe an analyzed plan so exactly that two equal descriptions mean equal results.

Spark offers no stable identity of a plan: ``semanticHash`` differs from one JVM to the next and tree strings are cut
and leave out literal types, files and functions. So the description is put together from the plan's two prints
(:mod:`airflow_provider.spark.jvm.plan_text`), the version of each source at its leaves
(:mod:`airflow_provider.spark.jvm.sources`) and the identity of each Python function
(:mod:`airflow_provider.spark.functions`). A recovery point further down stands for itself: below it nothing is looked
at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider.recovery import explain
from airflow_provider.recovery.digest import digest
from airflow_provider.spark.functions import FunctionIdentity, FunctionReader
from airflow_provider.spark.jvm.determinism import NOT_DETERMINISTIC, OPAQUE
from airflow_provider.spark.jvm.plan_text import PlanText, Structure
from airflow_provider.spark.jvm.relation import vertex_token
from airflow_provider.spark.jvm.scala import has_member, items, to_seq
from airflow_provider.spark.jvm.settings import untruncated
from airflow_provider.spark.jvm.sources import Source, read_source

_KNOWN_PACKAGES = (
    "org.apache.spark.sql.catalyst.expressions.",
    "org.apache.spark.sql.catalyst.plans.",
    "org.apache.spark.sql.catalyst.analysis.",
    "org.apache.spark.sql.execution.datasources.LogicalRelation",
    "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation",
    "org.apache.spark.sql.execution.LogicalRDD",
    "org.apache.spark.sql.types.",
)
"""Nodes from elsewhere (data sources of third parties, typed Scala closures) are opaque."""

_PYTHON_FUNCTIONS = ("PythonUDF", "PythonUDAF", "PythonUDTF")


@dataclass(frozen=True)
class PythonFunction:
    """A Python function in a plan, under the name that Spark shows."""

    name: str
    identity: FunctionIdentity
    deterministic: bool


@dataclass
class PlanDescription:
    """What is known of a plan.

    :ivar plan: digest of its structure, without the following
    :ivar functions: its Python functions, in the order of the plan
    :ivar sources: what its leaves read, in the order of the plan
    :ivar upstream: tokens of the recovery points that it reads, in the order of the plan
    :ivar session: facts of the session that its expressions ask for, such as the current user
    :ivar opaque: reasons why nothing may be reused; empty if everything is described
    :ivar not_deterministic: what makes the plan's result vary from run to run; empty if nothing does
    """

    plan: str = ""
    functions: list[PythonFunction] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    upstream: list[str] = field(default_factory=list)
    session: dict[str, str] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    not_deterministic: list[str] = field(default_factory=list)


class PlanDescriber:
    """Describes plans of one session.

    :param spark: the session
    :param local_data: RDD id → digest of the rows that the script gave to ``createDataFrame``
    :param seeds: seeds that were drawn because the script gave none, in decimal
    :param functions: tells Python functions apart
    """

    def __init__(self, spark: Any, local_data: dict[int, str], seeds: set[str], functions: FunctionReader) -> None:
        self._spark = spark
        self._local_data = local_data
        self._seeds = seeds
        self._functions = functions
        patterns = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        python = [patterns.PYTHON_UDF(), patterns.GENERATOR()]  # a Python UDTF is a generator
        self._python = to_seq(spark._jvm, python)
        self._subquery = to_seq(spark._jvm, [patterns.PLAN_EXPRESSION()])
        self._python_or_subquery = to_seq(spark._jvm, [*python, patterns.PLAN_EXPRESSION()])

    def describe(self, df: Any) -> PlanDescription:
        """Return the description of *df*'s analyzed plan."""
        plan = df._jdf.queryExecution().analyzed()
        result = PlanDescription()
        text = PlanText(self._seeds)
        with untruncated(self._spark):
            structure = text.structure(plan.toJSON())
            tree = plan.treeString()
        found, subqueries = self._functions_and_subqueries(plan, reads_vertices=bool(structure.upstream))
        self._sources(plan, structure, result)
        for subquery in subqueries:
            self._sources(subquery, PlanText(self._seeds).structure(subquery.toJSON()), result)
        result.upstream = structure.upstream
        for result_id in structure.functions:
            if result_id in found:
                result.functions.append(found[result_id])
            else:
                result.opaque.append("a Python function cannot be looked at")
        names = {function.name for function in found.values()}
        result.plan = digest(structure.text, text.lines(tree, names), df.schema.json())
        self._judge(structure, result)
        return result

    def _judge(self, structure: Structure, result: PlanDescription) -> None:
        """Say of every class in the plan whether it is known and deterministic."""
        names = set()
        for class_name in sorted(structure.classes):
            name = class_name.rsplit(".", 1)[-1].rstrip("$")
            names.add(name)
            if name in OPAQUE:
                result.opaque.append(f"{OPAQUE[name]} ({name}) cannot be fingerprinted")
            elif not class_name.startswith(_KNOWN_PACKAGES):
                result.opaque.append(f"{name} is not known to recovery")
            if name in NOT_DETERMINISTIC:
                result.not_deterministic.append(f"{name}: {NOT_DETERMINISTIC[name]}")
        for function in result.functions:
            result.opaque += [f"function {function.name!r}: {reason}" for reason in function.identity.opaque]
            if not function.deterministic:
                result.not_deterministic.append(f"function {function.name!r} is marked as not deterministic")
        if "CurrentUser" in names:
            result.session["current user"] = str(self._spark._jvm.org.apache.spark.util.Utils.getCurrentUserName())
        if names & {"CurrentDatabase", "CurrentCatalog", "CurrentNamespace", "CurrentPath"}:
            catalog = self._spark.catalog
            result.session["current database"] = f"{catalog.currentCatalog()}.{catalog.currentDatabase()}"

    # -- what the prints leave out ---------------------------------------------------------------------------------

    def _sources(self, plan: Any, structure: Structure, result: PlanDescription) -> None:
        wanted = [name for name in structure.leaves if name is not None]
        if not wanted:
            return
        for name, leaf in zip(structure.leaves, items(plan.collectLeaves()), strict=True):
            if name is not None:
                source = read_source(self._spark, leaf, name, self._local_data)
                if source is not None:
                    result.sources.append(source)
                    result.opaque += [source.opaque] if source.opaque else []

    def _functions_and_subqueries(
        self, root: Any, *, reads_vertices: bool
    ) -> tuple[dict[int, PythonFunction], list[Any]]:
        """Return the Python functions above all recovery points by result id, and the plans inside expressions."""
        functions: dict[int, PythonFunction] = {}
        subqueries: list[Any] = []
        # Each question to the JVM costs, and there may be a thousand nodes: ask only what the plan can answer with yes.
        has_subqueries = root.containsAnyPattern(self._subquery)
        pending = [root]
        while pending:
            node = pending.pop()
            if not node.containsAnyPattern(self._python_or_subquery):
                continue
            if reads_vertices and node.getClass().getSimpleName() == "Project" and vertex_token(node) is not None:
                continue
            nested = list(items(node.subqueries())) if has_subqueries else []
            subqueries += nested
            for expression in items(node.expressions()):
                self._functions_in(expression, functions)
            pending += [*items(node.children()), *nested]
        return functions, subqueries

    def _functions_in(self, root: Any, found: dict[int, PythonFunction]) -> None:
        pending = [root]
        while pending:
            expression = pending.pop()
            if not expression.containsAnyPattern(self._python):
                continue
            if expression.getClass().getSimpleName() in _PYTHON_FUNCTIONS:
                result_id = int(expression.resultId().id())
                marked = has_member(expression, "udfDeterministic") and not expression.udfDeterministic()
                found[result_id] = PythonFunction(str(expression.name()), self._identity(expression), not marked)
            pending += items(expression.children())

    def _identity(self, expression: Any) -> FunctionIdentity:
        command = expression.func().command()
        return self._functions.read(bytes(command.toArray(self._spark._jvm.scala.reflect.ClassTag.Byte())))


def label_functions(functions: list[PythonFunction]) -> dict[str, str]:
    """Return fingerprint parts that name *functions*; a name that stands for several is numbered."""
    parts: dict[str, str] = {}
    for function in functions:
        name, number = f"{explain.FUNCTION} {function.name}", 1
        while parts.setdefault(name, function.identity.digest[:16]) != function.identity.digest[:16]:
            number += 1
            name = f"{explain.FUNCTION} {function.name}#{number}"
    return parts
