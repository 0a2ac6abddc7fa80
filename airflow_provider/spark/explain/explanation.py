"""What is told of a script: its actions, their plans, and the places for recovery points in them. Pure values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ExplainedPoint:
    """A place for a recovery point that a rule found.

    :ivar seconds: wall time that computing it takes, as far as can be told before anything runs
    :ivar refused: why nothing would be stored there; empty text if it would
    :ivar kept_by: number of the action that has stored it already; 0 if none has
    :ivar measured: whether its price is looked at again when the shuffles below it have run
    :ivar shuffles: names of the shuffles whose files are kept while it is computed
    """

    rule: str
    name: str
    seconds: float
    refused: str = ""
    kept_by: int = 0
    measured: bool = False
    shuffles: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExplainedNode:
    """A node of an optimized plan, with what is below it.

    :ivar size: Spark's estimate of its output in bytes; 0 if there is none
    :ivar note: what else there is to say
    """

    name: str
    label: str = ""
    size: int = 0
    children: tuple[ExplainedNode, ...] = ()
    point: ExplainedPoint | None = None
    note: str = ""

    def walk(self) -> Iterator[ExplainedNode]:
        """Yield it and all below, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class ExplainedAction:
    """An action of the script.

    :ivar number: from 1, in the script's order
    :ivar action: what the script calls, ``write.parquet``
    :ivar place: where, ``job.py:12``; empty if unknown
    :ivar plan: ``None`` where there is none to show; ``note`` says why
    """

    number: int
    action: str
    place: str = ""
    plan: ExplainedNode | None = None
    note: str = ""

    @property
    def points(self) -> list[ExplainedPoint]:
        """The places in its plan that a rule found, from the top."""
        nodes = self.plan.walk() if self.plan is not None else ()
        return [node.point for node in nodes if node.point is not None]


@dataclass
class Explanation:
    """All that is told of one script.

    :ivar error: why the script went no further, in one line; empty text if it came to its end
    :ivar jobs: Spark jobs that ran while plans were made, by what Spark calls them: reading schemas of files
    """

    application: str
    actions: list[ExplainedAction] = field(default_factory=list)
    error: str = ""
    jobs: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)
