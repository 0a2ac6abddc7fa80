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
    :ivar latest: when the newest of them was written, in milliseconds since the Unix epoch; 0 if there were none
    :ivar mode: ``append``, ``overwrite`` or ``error``
    :ivar table: its qualified name; empty text for a path
    :ivar creates: whether there was no such table before
    :ivar repeated: whether each attempt writes it
    :ivar writes: Spark's names of it, UUIDs, as far as they are known
    :ivar replaces: names of writes of earlier attempts that it takes the place of, once it is committed
    :ivar suspects: names of writes of which some may be this write's own, by attempts that died too early to learn them
    :ivar deaths: how many such attempts there were, and so how many of the suspects at most
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
    replaces: tuple[str, ...] = ()
    latest: int = 0
    suspects: tuple[str, ...] = ()
    deaths: int = 0

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
                writes=_names(state, "writes"),
                replaces=replaced_by(state),
                latest=int(state.get("latest", 2**63)),  # what wrote no such field suspects nothing
                suspects=suspected_by(state),
                deaths=int(state.get("deaths", 0)),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def to_state(self) -> dict[str, Any]:
        """Return plain JSON."""
        names = {name: list(getattr(self, name)) for name in ("writes", "replaces", "suspects")}
        return {"status": WRITING, **asdict(self), **names}

    def known_as(self, writes: set[str]) -> Self:
        """Return it with more of Spark's names of it."""
        return replace(self, writes=tuple(sorted({*self.writes, *writes})))


def replaced_by(state: Mapping[str, object]) -> tuple[str, ...]:
    """Return the writes of earlier attempts that a write, finished or not, was to take the place of."""
    return _names(state, "replaces")


def suspected_by(state: Mapping[str, object]) -> tuple[str, ...]:
    """Return the writes of which one may be this one's own, by an earlier attempt."""
    return _names(state, "suspects")


def _names(state: Mapping[str, object], field: str) -> tuple[str, ...]:
    names = state.get(field)
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def unfinished_writes(coordinators: Mapping[str, object], epoch: int) -> dict[str, UnfinishedWrite]:
    """Return the writes that attempts before *epoch* have begun and not ended, by coordinator."""
    found = {name: UnfinishedWrite.from_state(state) for name, state in coordinators.items() if name.startswith(SINK)}
    return {name: write for name, write in found.items() if write is not None and write.attempt < epoch}
