"""What is remembered of a write before it begins, so that a retry can take back what a killed one has left. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

WRITING = "WRITING"
"""The status of a write that has begun and not returned."""
TAKEN_BACK = "TAKEN_BACK"
"""The status of a write of which a later attempt has removed everything."""
SINK = "sink/"
"""With what the names of all writes begin, among the coordinators."""


@dataclass(frozen=True)
class UnfinishedWrite:
    """A write that was about to begin.

    :ivar title: what the log calls it
    :ivar attempt: that writes
    :ivar number: Hadoop's application attempt, which names the folder of the pending tasks
    :ivar location: the folder that it writes to
    :ivar existed: whether that folder was there before
    :ivar before: digest of the files that were there before
    :ivar mode: ``append``, ``overwrite`` or ``error``
    :ivar table: its qualified name; empty text for a path
    :ivar creates: whether there was no such table before
    :ivar repeated: whether each attempt writes it
    :ivar writes: Spark's names of it, UUIDs, as far as they are known
    """

    title: str
    attempt: int
    number: int
    location: str
    existed: bool
    before: str
    mode: str
    table: str = ""
    creates: bool = False
    repeated: bool = False
    writes: tuple[str, ...] = ()

    @classmethod
    def from_state(cls, state: object) -> Self | None:
        """Read what :meth:`to_state` returned; ``None`` for anything else."""
        if not isinstance(state, dict) or state.get("status") != WRITING:
            return None
        try:
            return cls(
                title=str(state["title"]),
                attempt=int(state["attempt"]),
                number=int(state["number"]),
                location=str(state["location"]),
                existed=bool(state["existed"]),
                before=str(state["before"]),
                mode=str(state["mode"]),
                table=str(state["table"]),
                creates=bool(state["creates"]),
                repeated=bool(state["repeated"]),
                writes=tuple(str(write) for write in state["writes"]),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def to_state(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"status": WRITING, **asdict(self), "writes": list(self.writes)}

    def known_as(self, writes: set[str]) -> Self:
        """Return it with more of Spark's names of it."""
        return replace(self, writes=tuple(sorted({*self.writes, *writes})))


def unfinished_writes(coordinators: Mapping[str, object], epoch: int) -> dict[str, UnfinishedWrite]:
    """Return the writes that attempts before *epoch* have begun and not ended, by coordinator."""
    found = {name: UnfinishedWrite.from_state(state) for name, state in coordinators.items() if name.startswith(SINK)}
    return {name: write for name, write in found.items() if write is not None and write.attempt < epoch}
