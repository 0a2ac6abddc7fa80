"""Decide what to give up when records of the job event store are lost.

A block that is missing, damaged, foreign or of a newer version may have held anything. Most of it is found again by
listing the partition store, or computed again: a partition of a deterministic vertex is right whatever the lost events
said, because its key names vertex, layout and content. There are two exceptions:

* **The incarnation of a vertex that is not deterministic.** A reset and a second computation may be lost, and the
  recorded partitions of the first one would be mixed with what was derived from the second. So such vertices are given
  up, with everything that reads them, directly or indirectly.
* **The start of an attempt that reuses nothing.** What it gave up would come back. An attempt's first event is the
  first record of a block, and attempts follow each other by number. So often it is certain that no start is lost: the
  blocks before and after belong to one attempt, or to two consecutive ones and the second one's start is there.
  Otherwise recovery is abandoned, and the next attempt starts from scratch.

State that only the driver knows (steps, pinned listings, queries, writes) stays as it was before the loss, because each
kind is checked before it is used: a step's identity, a listing's files, a commit's files. Only newer states are lost. A
write that adds rows therefore asks :func:`may_be_outdated`, and warns that its rows may be there twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider.core.events import VertexInitialized


@dataclass(frozen=True)
class Loss:
    """A block with lost records.

    :ivar epoch: the attempt that wrote it, 0 if unreadable
    :ivar first_read: whether its first record was read, so that it holds no lost start
    """

    block: int
    epoch: int = 0
    first_read: bool = False


LOST = "event-store/lost"
"""The coordinator that remembers a loss."""


def state_of_loss(loss: Loss, newest: int) -> dict[str, Any]:
    """Return the state for :data:`LOST`: the newest attempt whose records may be lost, and the block.

    :param newest: the newest attempt whose start is known; 0 if none is
    """
    return {"attempt": max(1, newest, loss.epoch), "block": loss.block}


def attempt_of_loss(coordinators: Mapping[str, Any]) -> int:
    """Return the newest attempt whose records may be lost; 0 if there is none."""
    state = coordinators.get(LOST)
    return _number(state, "attempt")


def may_be_outdated(coordinators: Mapping[str, Any], known: Mapping[str, Any] | None) -> str:
    """Return why an output may have been written more often than recorded; empty text if it was not.

    :param known: the output's recorded state, ``None`` if there is none
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
    """Return the lowest attempt that may have started afresh in a lost record; ``None`` if there can be none.

    :param newest: the newest attempt whose start is known; 0 if none is
    """
    if loss.first_read or 0 < loss.epoch <= newest:
        return None
    # The first attempt has nothing to reuse, so its start does not matter.
    return max(2, newest + 1)


def not_determined(vertices: Mapping[str, VertexInitialized]) -> list[str]:
    """Return the vertices that are not deterministic, and those that read one of them, directly or indirectly."""
    found = {identity for identity, vertex in vertices.items() if not vertex.deterministic}
    while more := {i for i, v in vertices.items() if i not in found and not found.isdisjoint(v.upstream)}:
        found |= more
    return [identity for identity in vertices if identity in found]
