"""Turn what Spark prints of a plan into a description that is equal in every session. Strings in, strings out; no JVM.

Spark prints a plan twice: as JSON (all constructor fields, literals with their types; but no maps, no plain lists, no
enumerations) and as a tree of lines (all that a reader would see). Each has what the other leaves out, so both count.
Taken out of both is what differs between two sessions that mean the same: ids of expressions and of common table
expressions, seeds that nobody chose, in how many slices a range is cut (the layout tells that), names of functions
(their code counts). A recovery point further down stands as a leaf: what is below it is cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.spark.recovery_point import VERTEX_ALIAS

_BINARY_LITERAL = re.compile(r'"value":"\[B@[0-9a-f]+"')
"""JSON shows a Java array's address; the line shows its bytes."""
_CLASS = re.compile(r'"class":"([^"]+)"(?!,"(?:pyClass|sqlType)")')
"""Of a node or an expression; that of a user-defined type stands before its Python class and what it is stored as."""
_EXPRESSION_ID = re.compile(r'\{"id":(\d+),"jvmId":"[^"]*","product-class":"[^"]*ExprId"\}')
_SESSION_ID = re.compile(r"(#|\b_gen_alias_|\bCTERelation(?:Def|Ref) |\bSPARK_GEN_SUBQ_)(\d+)")
_SESSION_ID_IN_JSON = re.compile(r"(_gen_alias_|SPARK_GEN_SUBQ_)(\d+)")
_PREFIX = re.compile(r"^(?:[ :][ ]{2})*(?:[:+]- )?")
_VERTEX_LINE = re.compile(r"SubqueryAlias `?" + re.escape(VERTEX_ALIAS))
_RANGE_SLICES = re.compile(r"^(\W*Range \([^()]*), splits=(?:Some\(\d+\)|None)\)")
_NEEDS_REWRITING = re.compile(
    r'"hideSeed":true|"randomSeed":|"isTempView":true|\.(?:Uuid|Shuffle|RandStr|Uniform)"|\.PythonUD|\.CTERelation|\.Range"|"__dataset_id"|'
    + re.escape(VERTEX_ALIAS)
)
"""What only a walk through the parsed JSON can take out; everything else is faster left as text."""

_DRAWN_SEED = 2**32
"""``uuid()`` and ``shuffle()`` do not show whether their seed was given; one this large was drawn by Spark."""

_PYTHON_FUNCTIONS = {"PythonUDF", "PythonUDAF", "PythonUDTF", "UnresolvedPythonUDTF"}
_DATASET_METADATA = {"__dataset_id", "__col_position"}


@dataclass
class Structure:
    """A plan's JSON, freed of what a session adds.

    :ivar text: the JSON above all recovery points
    :ivar classes: class names of all nodes and expressions in it
    :ivar leaves: of the plan's leaves from left to right, the short class name, or ``None`` below a recovery point
    :ivar upstream: tokens of the recovery points that the plan reads, in the order of the plan
    :ivar functions: result ids of its Python functions, in the order of the plan
    """

    text: str = ""
    classes: set[str] = field(default_factory=set)
    leaves: list[str | None] = field(default_factory=list)
    upstream: list[str] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)


class PlanText:
    """Reads the two prints of one plan; ids are numbered in the order in which they appear.

    :param seeds: seeds that were drawn because the script gave none, in decimal
    """

    def __init__(self, seeds: set[str]) -> None:
        self._ids: dict[str, int] = {}
        self._seeds = set(seeds)
        self._upstream: list[str] = []
        self._functions: list[int] = []

    # -- JSON ------------------------------------------------------------------------------------------------------

    def structure(self, plan_json: str) -> Structure:
        """Read the plan's JSON, a list of nodes in pre-order."""
        result = Structure(upstream=self._upstream, functions=self._functions)
        kept: list[str] = []
        for node, below_vertex in self._above_vertices(json.loads(plan_json)):
            if node is None:
                result.leaves += [None] * below_vertex
                continue
            if node.get("num-children") == 0:
                result.leaves.append(str(node["class"]).rsplit(".", 1)[-1].rstrip("$"))
            text = _dump(node)
            if _NEEDS_REWRITING.search(text):
                text = _dump(self._rewrite(node))
            kept.append(text)
        text = _BINARY_LITERAL.sub('"value":"binary"', "\n".join(kept))
        text = _EXPRESSION_ID.sub(lambda match: f'"#{self._number("#", match[1])}"', text)
        result.text = self._without_seeds(_SESSION_ID_IN_JSON.sub(self._renumber, text))
        result.classes = set(_CLASS.findall(result.text))
        return result

    def _above_vertices(self, nodes: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any] | None, int]]:
        """Yield each node with 0; for a recovery point one leaf in its place, then ``None`` and its number of leaves.

        The leaf keeps the names and ids of its columns: what lies above refers to them. It is the same whether the
        recovery point was read back, computed just now, or left to be computed.
        """
        skip = leaves = 0
        for node, child in zip(nodes, [*nodes[1:], {}], strict=True):
            if skip:
                skip += node["num-children"] - 1
                leaves += node["num-children"] == 0
                if not skip:
                    yield None, leaves
                continue
            alias = str((child.get("identifier") or {}).get("name", ""))
            if node["class"].endswith(".Project") and alias.startswith(VERTEX_ALIAS):
                skip, leaves = node["num-children"], 0
                self._upstream.append(alias[len(VERTEX_ALIAS) :])
                columns = [{"name": column[0]["name"], "exprId": column[0]["exprId"]} for column in node["projectList"]]
                yield {"vertex": len(self._upstream), "columns": columns}, 0
            else:
                yield node, 0

    def _rewrite(self, value: Any) -> Any:
        if isinstance(value, list):
            if value and isinstance(value[0], dict) and "num-children" in value[0]:
                value = [node for node, _ in self._above_vertices(value) if node is not None]
                self._note_seeds(value)
            return [self._rewrite(item) for item in value]
        if not isinstance(value, dict):
            return value
        name = str(value.get("class", "")).rsplit(".", 1)[-1]
        if name in _PYTHON_FUNCTIONS:
            self._functions.append(int((value.get("resultId") or {}).get("id", -1)))
            value = {**value, "name": len(self._functions)}
        elif name in ("CTERelationDef", "CTERelationRef"):
            key = "id" if name == "CTERelationDef" else "cteId"
            value = {**value, key: self._number("CTE", str(value[key]))}
        elif name == "View" and value.get("isTempView") is True:
            value = {key: item for key, item in value.items() if key != "desc"}  # it tells when the view was made
        elif name == "Range":
            value = {key: item for key, item in value.items() if key != "numSlices"}
        elif name in ("Uuid", "Shuffle"):
            self._note_drawn(value.get("randomSeed"))
        return {key: self._rewrite(item) for key, item in value.items() if key not in _DATASET_METADATA}

    def _note_seeds(self, nodes: list[Any]) -> None:
        """Note the seeds of expressions that hide theirs: the literals right behind them were drawn by Spark."""
        for position, node in enumerate(nodes):
            if isinstance(node, dict) and node.get("hideSeed") is True:
                for child in nodes[position + 1 : position + 4]:
                    if str(child.get("class", "")).endswith(".Literal") and child.get("dataType") == "long":
                        self._note_drawn(child.get("value"))

    def _note_drawn(self, seed: object) -> None:
        try:
            number = int(str(seed))
        except ValueError:
            return
        if abs(number) >= _DRAWN_SEED:
            self._seeds.add(str(number))

    # -- lines -----------------------------------------------------------------------------------------------------

    def lines(self, tree: str, function_names: Collection[str]) -> str:
        """Return the plan's tree of lines; to be called after :meth:`structure`.

        :param function_names: names of the plan's Python functions, which are taken out
        """
        kept: list[str] = []
        lines = tree.split("\n")
        cut: int | None = None
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            depth = len(_PREFIX.match(line)[0])  # type: ignore[index]  # it matches any line
            if cut is not None and depth > cut:
                continue
            cut = None
            if _VERTEX_LINE.search(following) and line[depth:].startswith("Project"):
                cut = depth
                kept.append(f"{line[:depth]}vertex")
            else:
                kept.append(_RANGE_SLICES.sub(r"\1)", line))
        text = self._without_seeds(_SESSION_ID.sub(self._renumber, "\n".join(kept)))
        for name in sorted(function_names, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(name)}\(", "function(", text)
        return text

    def _without_seeds(self, text: str) -> str:
        if not self._seeds:
            return text
        alternatives = "|".join(re.escape(seed) for seed in self._seeds)
        return re.sub(rf"(?<![\d-])(?:{alternatives})(?!\d)", "drawn", text)

    def _renumber(self, match: re.Match[str]) -> str:
        kind = "CTE" if match[1].startswith("CTE") else match[1]
        return f"{match[1]}{self._number(kind, match[2])}"

    def _number(self, kind: str, number: str) -> int:
        return self._ids.setdefault(kind + number, len(self._ids))


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
