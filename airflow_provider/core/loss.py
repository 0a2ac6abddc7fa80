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

What the driver alone knows (steps, pinned listings, queries, writes) is kept as it was before the loss: each of these
is compared with what is there before it counts, a step's identity, a listing's files, a commit's files. Only newer
states are lost. Whoever adds rows then asks :func:`may_be_outdated`, and says that they may be there twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


LOST = "event-store/lost"
"""The coordinator that remembers a loss."""


def state_of_loss(loss: Loss, newest: int) -> dict[str, Any]:
    """Return what :data:`LOST` remembers: the newest attempt of which records may be lost, and the block.

    :param newest: the newest attempt whose start is known; 0 if none is
    """
    return {"attempt": max(1, newest, loss.epoch), "block": loss.block}


def attempt_of_loss(coordinators: Mapping[str, Any]) -> int:
    """Return the newest attempt of which records may be lost; 0 if none are."""
    state = coordinators.get(LOST)
    return _number(state, "attempt")


def may_be_outdated(coordinators: Mapping[str, Any], known: Mapping[str, Any] | None) -> str:
    """Return why an output may have been written more often than is known; empty text if it was not.

    :param known: what is remembered of it, ``None`` if nothing is
    """
    newest = attempt_of_loss(coordinators)
    if not newest or (known is not None and _number(known, "attempt") > newest):
        return ""
    block = _number(coordinators[LOST], "block")
    return f"block {block} of the event store is lost, which may have told that an earlier attempt has written it"


def _number(state: object, name: str) -> int:
    value = state.get(name) if isinstance(state, Mapping) else None
    return value if isinstance(value, int) else 0


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
