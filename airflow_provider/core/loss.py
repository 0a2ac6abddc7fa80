"""What is given up because records of the job event store are lost.

A block that is missing, damaged, foreign or of a newer version may have held anything. Most of it is found again by
listing the partition store, or computed again: a partition of a deterministic vertex is right whatever the lost events
said, because its key tells vertex, layout and content. Two things are not:

* **The incarnation of a vertex that is not deterministic.** A reset and a second computation may be lost, and what is
  recorded of the first one would be mixed with what others derived from the second. So such vertices are given up, with
  all that reads them, directly or not.
* **The start of an attempt that reuses nothing.** What it gave up would come back. The first event of an attempt is the
  first record of a block, and attempts follow each other by number, so often it is certain that no start is lost: the
  blocks before and after are of one attempt, or of two that follow each other and the second one's start is there.
  Where it is not certain, recovery is abandoned, and the next attempt starts from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider.core.events import VertexInitialized


@dataclass(frozen=True)
class Loss:
    """A block of which some or all records are lost.

    :ivar epoch: the attempt that wrote it, 0 if that cannot be read
    :ivar first_read: whether its first record was read, so that no start is lost with it
    """

    block: int
    epoch: int = 0
    first_read: bool = False


def first_start_lost(loss: Loss, newest: int) -> int | None:
    """Return the lowest attempt that reuses nothing and whose start may be lost; ``None`` if there can be none.

    :param newest: the newest attempt whose start is known; 0 if none is
    """
    if loss.first_read or 0 < loss.epoch <= newest:
        return None
    # The first attempt has nothing to reuse, so that its start does not matter.
    return max(2, newest + 1)


def not_determined(vertices: Mapping[str, VertexInitialized]) -> list[str]:
    """Return the vertices that are not deterministic and those that read one of them, directly or not."""
    found = {identity for identity, vertex in vertices.items() if not vertex.deterministic}
    while more := {i for i, v in vertices.items() if i not in found and not found.isdisjoint(v.upstream)}:
        found |= more
    return [identity for identity in vertices if identity in found]
