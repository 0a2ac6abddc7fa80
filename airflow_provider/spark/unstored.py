"""Recovery points that were not worth storing: the plan goes on from their rows, as an RDD.

An RDD tells nothing of what it holds. Of these it is known: the rows of the recovery point, cut in a certain way. So
what is made of them has a fingerprint and a layout like anything else, and the files of a shuffle above can be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.digest import digest

if TYPE_CHECKING:
    from airflow_provider.spark.recovery_point import RecoveryPoint


@dataclass
class Unstored:
    """What is known of such RDDs.

    :ivar cuts: RDD id → layout
    :ivar seconds: RDD id → wall time that what it goes on from took
    :ivar vertices: the recovery points
    :ivar shuffles: recovery point → Spark's numbers of the shuffles that have run for it, if all are held
    """

    cuts: dict[int, str] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    vertices: set[str] = field(default_factory=set)
    shuffles: dict[str, frozenset[int]] = field(default_factory=dict)

    def add(self, rows: dict[int, str], frame: Any, point: RecoveryPoint, layout: str, seconds: float) -> None:
        """Tell of the RDD that *frame* reads.

        :param rows: RDD id → digest of its rows, to which it is added
        """
        rdd = int(frame._jdf.queryExecution().analyzed().rdd().id())
        rows[rdd] = digest(point.vertex, layout)
        self.cuts[rdd] = layout
        self.seconds[rdd] = seconds
        self.vertices.add(point.vertex)
