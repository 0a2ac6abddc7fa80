"""How a vertex was split into partitions, and what a retry needs to split it the same way again.

A retry may run on a cluster of another size, where scans and ranges would be split differently, and adaptive execution
decides by sizes in bytes that differ a little from run to run. What follows from the cluster or from chance is pinned.
What the script or the configuration changes on purpose is not: a user who raises ``spark.sql.shuffle.partitions``
because tasks ran out of memory must get what they ask for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider.core import explain


@dataclass(frozen=True)
class Cut:
    """What decided the partitions of a vertex.

    :ivar leaf_parallelism: minimum number of partitions of scans and ranges; 0 if unknown
    :ivar settings: explicitly set settings that decide how rows are split
    :ivar reads: reducer ranges ``[start, end)`` of each shuffle read in the last stage, in the order of the plan
    """

    leaf_parallelism: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    reads: list[list[tuple[int, int]]] = field(default_factory=list)

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Cut:
        """Read what :meth:`to_spec` wrote."""
        reads = [[(int(start), int(end)) for start, end in ranges] for ranges in spec.get("reads", [])]
        return cls(int(spec.get("leaf_parallelism", 0)), dict(spec.get("settings", {})), reads)

    def to_spec(self) -> dict[str, Any]:
        """Return the cut as plain JSON."""
        reads = [[list(pair) for pair in ranges] for ranges in self.reads]
        return {"leaf_parallelism": self.leaf_parallelism, "settings": self.settings, "reads": reads}

    def changes_since(self, old: Cut) -> str:
        """Return which settings have changed, in words; empty if none has."""
        before, now = ({f"{explain.SETTING} {name}": v for name, v in cut.settings.items()} for cut in (old, self))
        return "; ".join(explain.reasons(before, now)) if before != now else ""
