"""Whether a recovery point is worth its price. Seconds of wall time; no JVM.

Two questions. Before anything runs, from the size of the files below: can storing pay at all? Then, when the shuffles
below have run and their size and time are known: does it still? The rates are those of a modest machine; they need to
be right to a factor of two or three, because what is really dear differs by more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider.recovery.quantities import bytes_text
from airflow_provider.spark.auto.rules import Node, Placement

READ_RATE = 5 * 2**20
"""Bytes of columnar files, in the columns that are used, that one core reads, joins and reduces in a second: the median
of TPC-H's queries, from 1 for those that join and group most to 10 for those that only add up."""
PYTHON_FACTOR = 10
"""By how much a Python function slows that down, at least."""
STORE_RATE = 40 * 2**20
"""Bytes of rows that one core stores, and reads back, in a second."""
COPY_RATE = 100 * 2**20
"""Bytes of shuffle files that one core copies into the store in a second, as long as that has not been measured."""
FIXED_PRICE = 0.5
"""Seconds that every recovery point costs: its fingerprint, a job of its own, requests to the store."""
SPLIT_PRICE = 1.0
"""Seconds more for a point below another: the plan runs in two goes. Each is planned by itself, cores are idle at the
end of the first, and what both broadcast is computed twice."""
SHUFFLE_PRICE = 0.2
"""Seconds that keeping a shuffle costs beside copying its files: its fingerprint, and planning its tasks by itself."""
PLACING = 0.5
"""The share of the budget that may go into these fixed prices; the rest is for what is stored."""
PYTHON_START = 2.0
"""Seconds until executors run Python, which the first point that tasks store waits for."""

WAVES = 8
"""A pilot is one wave of at least so many: what it stores may be stored in vain, and two jobs take longer than one."""


@dataclass(frozen=True)
class CostModel:
    """What recovery points may cost.

    :ivar budget: how many seconds may be spent on storing for one second of computing
    :ivar cores: tasks that run side by side
    """

    budget: float
    cores: int

    def computing(self, node: Node) -> float:
        """Estimate the seconds that computing *node* takes, from what its leaves read."""
        factor = PYTHON_FACTOR if node.holds_python else 1
        return node.reads * factor / (READ_RATE * max(1, self.cores))

    def too_cheap(self, seconds: float, price: float = FIXED_PRICE) -> str:
        """Say why a fixed *price* cannot pay for work of *seconds*; empty text if it can."""
        if seconds * self.budget * PLACING >= price:
            return ""
        return f"computing it takes about {seconds:.1f} s, which is too little to be worth storing"

    def not_placed(self, root: Node, found: Sequence[Placement]) -> dict[Node, str]:
        """Say why recovery points are not worth their places in a plan, by the nodes of those that are not.

        Their fixed prices add up. What takes longest to compute comes first; of equals, what stands highest.

        :param root: of the plan
        :param found: those further down first
        """
        whole = self.computing(root)
        left = whole * self.budget * PLACING
        refused = {}
        highest_first = found[::-1]
        for placement in sorted(highest_first, key=lambda placement: -self.computing(placement.node)):
            price = FIXED_PRICE + SPLIT_PRICE * placement.splits
            too_cheap = self.too_cheap(self.computing(placement.node), price)
            if too_cheap:
                refused[placement.node] = too_cheap
            elif price > left:
                refused[placement.node] = (
                    f"computing the whole plan takes about {whole:.1f} s, which is too little for so many points"
                )
            else:
                left -= price
        return refused

    def too_dear(self, seconds: float, size: int, *, starts_python: bool = False) -> str:
        """Say why storing *size* bytes after *seconds* of computing does not pay; empty text if it does.

        :param starts_python: whether executors would run Python for nothing else
        """
        price = FIXED_PRICE + PYTHON_START * starts_python + size / (STORE_RATE * max(1, self.cores))
        if price <= seconds * self.budget:
            return ""
        return (
            f"storing about {bytes_text(size)} would take {price:.1f} s, more than {self.budget:.0%} of the "
            f"{seconds:.1f} s that computing took"
        )

    def affordable(self, size: float, *, seconds: float, copied: int, spent: float) -> int:
        """Return how many map outputs of *size* bytes may be copied into the store now.

        :param seconds: since their application began to compute them
        :param copied: bytes that have been copied so far
        :param spent: task seconds that this took
        """
        rate = copied / spent if copied and spent else COPY_RATE
        left = seconds * self.cores * self.budget - spent
        return max(0, int(left * rate / max(1.0, size)))

    def price(self, node: Node) -> Price:
        """Return what is asked while *node* is computed."""
        return Price(self, self.computing(node), node.size, node.holds_python)


@dataclass(frozen=True)
class Price:
    """Whether to go on with one recovery point, asked again whenever more is known.

    :ivar seconds: what computing it was estimated to take
    :ivar size: Spark's estimate of its rows, in bytes; 0 if there is none
    :ivar python: whether computing it runs Python anyway
    """

    model: CostModel
    seconds: float
    size: int
    python: bool = False

    def too_dear(self, measured_seconds: float, shuffled: int, *, first: bool = False) -> str:
        """Say why storing does not pay, now that the shuffles below have run; empty text if it does.

        :param shuffled: bytes that they hand on; 0 if there are none, then only the estimates are known
        :param first: whether it is the first one of the application that tasks would store
        """
        seconds, size = (measured_seconds, shuffled) if shuffled else (self.seconds, self.size)
        return self.model.too_dear(seconds, size, starts_python=first and not self.python)

    def pilot(self, missing: list[int]) -> list[int]:
        """Return the partitions that are stored first to see what that costs; none where there are few."""
        cores = self.model.cores
        return missing[:cores] if len(missing) >= WAVES * cores else []

    def pilot_too_dear(self, seconds: float, storing: float) -> str:
        """Say why storing does not pay, from what the pilot's tasks took; empty text if it does.

        :param seconds: task time in all
        :param storing: task time of it that went into storing
        """
        computing = seconds - storing
        if storing <= computing * self.model.budget:
            return ""
        return f"a pilot took {storing:.1f} s for storing what was computed in {computing:.1f} s"
