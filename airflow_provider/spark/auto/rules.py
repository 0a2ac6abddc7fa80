"""Where auto mode places recovery points in an optimized plan. Each rule stands here with its reason; no JVM.

What is worth keeping is what was dear to compute and is small to store: that is the case behind a reduction (an
aggregate), and in front of a shuffle whose input was dear (another shuffle, a Python function). What is cheap to
compute again is left alone: scans, filters and projections by Spark itself, and all that is small enough to be
broadcast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any


class Rule(StrEnum):
    """Why a recovery point stands where it does."""

    AGGREGATE = "aggregate"
    """Above an aggregate or a distinct: it has read much and returns little, and its shuffle is over."""
    WINDOW = "window"
    """Above a window: it has shuffled and sorted its input."""
    GROUPED_FUNCTION = "grouped function"
    """Above a Python function on groups (``applyInPandas``): a shuffle and Python in one."""
    SHUFFLE = "shuffle"
    """The output of each task in front of a shuffle that reads sources: that is where a long query spends its time.
    Not placed here but found in the physical plan of what is computed for another point (``spark/shuffles.py``)."""
    JOIN_INPUT = "join input"
    """At an input of a shuffled join that holds a shuffle or a Python function: the join can fail for want of memory,
    and what feeds it was dear."""
    AGGREGATE_INPUT = "aggregate input"
    """At the input of an aggregate, a window or a grouped function that holds a shuffle, a join's say. Mostly too large
    to be stored; but then what its tasks hand to the shuffle of the aggregate is kept, task by task."""
    FUNCTION_BEFORE_SHUFFLE = "function before a shuffle"
    """Where a Python function's results go into a shuffle: shuffle files die with the application, and Python is what
    takes the time."""
    FUNCTION_BEFORE_SINK = "function before the sink"
    """Under the sink of a plan without a shuffle that holds a Python function: the sink keeps nothing of a job that
    was killed in the middle."""
    BEFORE_SINK = "before the sink"
    """Under a sink that is fed through shuffles, a join's say: it keeps nothing of a job that was killed in the middle.
    Mostly too large to be stored, too; but the shuffles below are kept while it is computed."""
    RESULT = "result"
    """What an action returns to the driver: small, and the script's next steps need it."""
    PERSISTED = "persisted"
    """What the script itself keeps, with ``cache()``, ``persist()``, ``checkpoint()`` or ``CACHE TABLE``: its author
    has said that it is dear."""


@dataclass(frozen=True, eq=False)
class Node:
    """A node of an optimized plan, as far as the rules look at it.

    :ivar name: Spark's class name, ``Aggregate``
    :ivar label: for people: by what it groups
    :ivar size: Spark's estimate of its output, in bytes; a product of its inputs above joins
    :ivar shuffles: whether its inputs are shuffled
    :ivar python: whether it runs Python functions itself
    :ivar broadcast: of its children, the positions of those that are sent whole to every executor
    :ivar plan: the plan's own node
    """

    name: str
    children: tuple[Node, ...] = ()
    label: str = ""
    size: int = 0
    shuffles: bool = False
    python: bool = False
    broadcast: frozenset[int] = frozenset()
    plan: Any = None

    @cached_property
    def holds_shuffle(self) -> bool:
        """Whether it or anything below shuffles."""
        return self.shuffles or any(child.holds_shuffle for child in self.children)

    @cached_property
    def holds_python(self) -> bool:
        """Whether it or anything below runs Python."""
        return self.python or any(child.holds_python for child in self.children)

    @cached_property
    def python_since_shuffle(self) -> bool:
        """Whether Python runs between it and the next shuffle below."""
        return self.python or (
            not self.shuffles
            and any(child.python_since_shuffle for at, child in enumerate(self.children) if at not in self.broadcast)
        )

    @cached_property
    def reads(self) -> int:
        """Bytes that the leaves below read, after Spark has left out columns."""
        if not self.children:
            return self.size
        below = sum(child.reads for child in self.children)
        return min(below, self.size) if self.is_scan and self.size else below

    @property
    def is_scan(self) -> bool:
        """Whether it only chooses among the columns and rows of a leaf."""
        return not self.children or (self.name in _CHEAP and self.children[0].is_scan)

    def walk(self) -> Iterator[Node]:
        """Yield it and all below, children first."""
        for child in self.children:
            yield from child.walk()
        yield self


@dataclass(frozen=True, eq=False)
class Placement:
    """A recovery point above *node*.

    :ivar splits: whether another one stands above, so that the plan runs in two goes
    """

    node: Node
    rule: Rule
    splits: bool = False

    @property
    def name(self) -> str:
        """The vertex's name for people: the rule and what it stands on."""
        what = self.node.label if self.rule not in _SHOWS_NODE else f"{self.node.name} {self.node.label}".strip()
        text = f"{self.rule}({what})" if what else str(self.rule)
        return text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 2]}…)"


CACHED = "InMemoryRelation"
"""A leaf that reads a cached DataFrame."""

_NAME_LENGTH = 60
_CHEAP = frozenset({"Project", "Filter"})
_ABOVE = {
    "Aggregate": Rule.AGGREGATE,
    "Window": Rule.WINDOW,
    "WindowGroupLimit": Rule.WINDOW,
    "FlatMapGroupsInPandas": Rule.GROUPED_FUNCTION,
    "FlatMapGroupsInArrow": Rule.GROUPED_FUNCTION,
    "FlatMapCoGroupsInPandas": Rule.GROUPED_FUNCTION,
    "FlatMapCoGroupsInArrow": Rule.GROUPED_FUNCTION,
}
_SHOWS_NODE = frozenset(
    {
        Rule.JOIN_INPUT,
        Rule.AGGREGATE_INPUT,
        Rule.FUNCTION_BEFORE_SHUFFLE,
        Rule.FUNCTION_BEFORE_SINK,
        Rule.BEFORE_SINK,
        Rule.RESULT,
    }
)
_ORDERED = frozenset({"Sort", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Project"})
"""At the top of a plan these decide the order in which rows arrive, which stored partitions do not keep."""
_SPREAD = frozenset({"Repartition", "RepartitionByExpression", "RebalancePartitions"})
"""These decide how many files a sink writes, and which rows lie together in one."""


def placements(root: Node, *, returns_rows: bool) -> list[Placement]:
    """Return the recovery points of a plan, those further down first.

    :param returns_rows: the action returns rows to the driver; otherwise it writes them somewhere
    """
    found = _inside(root)
    top = below_order(root) if returns_rows else below_files(root)
    if root.holds_shuffle and top.holds_shuffle and not _covered(top, found):
        found[top] = Rule.RESULT if returns_rows else Rule.BEFORE_SINK
    return _in_order(root, found)


def placements_in_kept(root: Node) -> list[Placement]:
    """Return the recovery points of a plan that the script keeps as a whole; the last one stands on *root*."""
    return _in_order(root, _inside(root) | {root: Rule.PERSISTED})


def _in_order(root: Node, found: dict[Node, Rule]) -> list[Placement]:
    """Return the places as placements, those further down first."""
    below = {node for place in found for node in place.walk() if node is not place}
    return [Placement(node, found[node], node in below) for node in root.walk() if node in found]


def below_order(root: Node) -> Node:
    """Return the highest node whose rows have no order that counts."""
    return _below(root, _ORDERED)


def below_files(root: Node) -> Node:
    """Return the highest node of which neither the order of rows counts, nor how they are spread over files."""
    return _below(root, _ORDERED | _SPREAD)


def _below(root: Node, deciding: frozenset[str]) -> Node:
    node = root
    while _decides(node, deciding):
        node = node.children[0]
    return node


def _decides(node: Node, deciding: frozenset[str]) -> bool:
    """Whether *node* is one of *deciding*, or a projection that only passes on what such a one below has decided."""
    while node.name in deciding and len(node.children) == 1:
        if node.name != "Project":
            return True
        node = node.children[0]
    return False


def _inside(root: Node) -> dict[Node, Rule]:
    """Return the places within a plan, whatever becomes of its rows."""
    found: dict[Node, Rule] = {}
    _visit(root, found)
    if not root.holds_shuffle and root.holds_python:
        found.setdefault(below_order(root), Rule.FUNCTION_BEFORE_SINK)
    return found


def _visit(node: Node, found: dict[Node, Rule]) -> None:
    if node.name in _ABOVE:
        found[node] = _ABOVE[node.name]
    for at, child in enumerate(node.children):
        if at in node.broadcast and not child.holds_python:
            continue
        _visit(child, found)
        if not node.shuffles or _covered(child, found):
            continue
        if child.python_since_shuffle:
            found[child] = Rule.FUNCTION_BEFORE_SHUFFLE
        elif node.name == "Join" and child.holds_shuffle:
            found[child] = Rule.JOIN_INPUT
        elif node.name in _ABOVE and child.holds_shuffle:
            found[child] = Rule.AGGREGATE_INPUT


def _covered(node: Node, found: dict[Node, Rule]) -> bool:
    """Whether only cheap nodes stand between *node* and a recovery point below."""
    while node not in found:
        if node.name not in _CHEAP or node.python or len(node.children) != 1:
            return False
        node = node.children[0]
    return True
