"""The record of a write, stored before it begins, so that a retry can take back what a killed write left. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from airflow_provider.core.task_output import Cut, kept_beside

WRITING = "WRITING"
"""The status of a write that has begun and not returned."""
WRITTEN = "WRITTEN"
"""The status of a committed write whose rows are certain to be the same in each attempt."""
REPEATED = "REPEATED"
"""The status of a committed write that each attempt makes again."""
UNKNOWN = "UNKNOWN"
"""The status of a committed write whose files cannot be told from those of others."""
TAKEN_BACK = "TAKEN_BACK"
"""The status of a write of which a later attempt has removed everything."""
RETURNED = "RETURNED"
"""The status of a write that has returned and that each attempt makes again, whatever it has left."""
ON_THIS_MACHINE = "ON_THIS_MACHINE"
"""The status of a committed write to disks of the driver's machine, which a retry may not have."""
ROWS = "rows"
"""What is remembered under this name of a write that was taken back says whether it had been committed."""
SINK = "sink/"
"""With what the names of all writes begin, among the coordinators."""
UNKNOWN_SINK = "unknown-sink/"
"""With what the names of those begin of which only the target is known."""
MOMENT = "moment"
"""What is remembered of a write under this name stands for the state of all that functions have read for it by
themselves; nothing if they read nothing.
"""
MADE = "made"
"""What is remembered of a write under this name stands for its rows, and for how they are written, wherever that is."""
CALL = "call"
"""What is remembered of a write under this name stands for the script's call, whatever its sources hold."""
SOURCES = "sources"
"""What is remembered of a write under this name are the sources of its rows: the name and the identity of each."""
READS = "reads"
"""What is remembered of a write under this name are the vertices whose rows it writes."""
_LEFT_OUT = "left_out"
_TOLD = "told"


def is_written(state: object) -> bool:
    """Whether an output's recorded state says that it is written, so that a retry skips it."""
    return isinstance(state, Mapping) and state.get("status") == WRITTEN


def output_state(status: str, attempt: int, title: str, reads: Iterable[str]) -> dict[str, Any]:
    """Return the state that is recorded for every output, as plain JSON.

    :param title: its name in the log, the report and on the page
    :param reads: the vertices whose rows it writes
    """
    return {"status": status, "attempt": attempt, "title": title, READS: list(reads)}


@dataclass(frozen=True)
class UnfinishedWrite:
    """A write that began, or was about to begin, and has not returned.

    :ivar title: its name in the log
    :ivar attempt: the writing attempt
    :ivar number: Hadoop's application attempt, which names the folder of the pending tasks
    :ivar location: its target folder
    :ivar existed: whether that folder existed before
    :ivar before: digest of the files that existed before
    :ivar mode: ``append``, ``overwrite`` or ``error``
    :ivar table: its qualified name; empty text for a path
    :ivar creates: whether the table did not exist before
    :ivar repeated: whether each attempt makes this write again
    :ivar of_a_batch: whether it belongs to a streaming query, which does not repeat a committed batch
    :ivar reads: the vertices whose rows it writes
    :ivar watched: whether nothing of it is written before Spark's name of it is recorded
    :ivar writes: Spark's names of it, UUIDs, as far as they are known
    :ivar failed: Spark's names of earlier executions in the same attempt, whose tasks may have been about to commit
    :ivar cut: how its rows are divided among tasks; a retry may keep the committed ones
    :ivar kept: whether it keeps tasks of earlier attempts; none of it is in the target then
    :ivar tasks: number of its tasks, if it skips some that earlier attempts committed; else 0
    :ivar left_out: number of the tasks that it skips
    :ivar moment: identifies the state of the files and services that functions read for it; empty text if they read
        none
    :ivar told: whether its plan distinguishes it from other writes
    :ivar origin: what is recorded with its commit of where its rows come from
    :ivar replaces: if it replaces everything, number and bytes of the files of the job's earlier writes, by their names
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
    watched: bool = False
    writes: tuple[str, ...] = ()
    of_a_batch: bool = False
    reads: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    cut: Cut = field(default_factory=Cut)
    kept: bool = False
    tasks: int = 0
    left_out: int = 0
    moment: str = ""
    told: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)
    replaces: Mapping[str, Sequence[int]] = field(default_factory=dict)

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
                watched=bool(state.get("watched")),  # older releases did not wait for Spark's name
                writes=tuple(str(name) for name in state["writes"]),
                of_a_batch=bool(state.get("of_a_batch")),
                reads=tuple(str(vertex) for vertex in state.get(READS, ())),
                failed=tuple(str(name) for name in state.get("failed", ())),
                cut=Cut.from_state(state.get("cut")),
                kept=bool(state.get("kept")),
                tasks=int(state.get("tasks", 0)),
                left_out=int(state.get(_LEFT_OUT, 0)),
                moment=str(state.get(MOMENT, "")),
                told=bool(state.get(_TOLD)),
                origin=dict(state.get("origin", {})),
                replaces=dict(state.get("replaces", {})),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def to_state(self) -> dict[str, Any]:
        """Return plain JSON."""
        names = {"writes": list(self.writes), "failed": list(self.failed)}
        return {"status": WRITING, **asdict(self), **names, "cut": self.cut.to_state(), READS: list(self.reads)}

    def addition(self) -> dict[str, Any]:
        """Return what is recorded with its commit, so that its rows can be taken back. Empty if it replaces rows, or
        belongs to a streaming query, which may not write them again.
        """
        if self.mode == "overwrite" or self.of_a_batch:
            return {}
        table = self.table if self.creates else ""
        added = {
            "title": self.title,
            "location": self.location,
            "created": not self.existed,
            "table": table,
            "mode": self.mode,
            _TOLD: self.told,
        }
        return {**added, MOMENT: self.moment} if self.moment else added

    def going_on(self) -> dict[str, Any]:
        """Return what is recorded with its commit if it skipped tasks that earlier attempts committed."""
        return {"tasks": self.tasks, _LEFT_OUT: self.left_out} if self.left_out else {}

    def known_as(self, write: str, cut: Cut | None = None) -> Self:
        """Return the record with another of Spark's names for the write, which waits until that is recorded.

        :param cut: how its rows are divided among tasks; ignored if it has several names, because its tasks cannot be
            told apart
        """
        only = cut if cut is not None and not self.writes else Cut()
        return replace(self, watched=True, writes=(*self.writes, write), cut=only)

    def taken_over(self, attempt: int, number: int) -> Self:
        """Return it as the write of a later attempt that keeps its committed tasks."""
        return replace(self, attempt=attempt, number=number, kept=True, tasks=0, left_out=0)

    @property
    def may_be_kept(self) -> bool:
        """Whether its committed tasks' files are certain to equal those of a retry's tasks."""
        alone = self.watched and len(self.writes) == 1 and not self.failed
        return alone and bool(self.cut.layout) and not self.repeated and not self.of_a_batch


def at_another_moment(then: str, now: str) -> bool:
    """Whether functions may have read other data *then* than *now*; ``False`` if they read nothing.

    :param then: the value recorded under :data:`MOMENT`; empty text if there is none
    """
    return then not in ("", now)


def writes_going_on(coordinators: Mapping[str, object], epoch: int) -> list[str]:
    """Return a sentence for each write of attempt *epoch* that continues a write of a killed attempt."""
    found = [state for state in coordinators.values() if isinstance(state, Mapping) and state.get("attempt") == epoch]
    return [
        f"output {state['title']} goes on: {state[_LEFT_OUT]:,} of its {state['tasks']:,} tasks had been committed by "
        "earlier attempts"
        for state in found
        if state.get(_LEFT_OUT)
    ]


def unfinished_writes(coordinators: Mapping[str, object], epoch: int) -> dict[str, UnfinishedWrite]:
    """Return the writes that attempts before *epoch* began and did not finish, by coordinator."""
    found = {name: UnfinishedWrite.from_state(state) for name, state in coordinators.items() if name.startswith(SINK)}
    return {name: write for name, write in found.items() if write is not None and write.attempt < epoch}


def folders_beside_outputs(coordinators: Mapping[str, object]) -> list[str]:
    """Return the folders that retries keep beside the targets of writes that have not been committed."""
    writes = (UnfinishedWrite.from_state(state) for state in coordinators.values())
    kept = (write for write in writes if write is not None and write.kept)
    return [kept_beside(write.location, name) for write in kept for name in write.writes]


@dataclass(frozen=True)
class AddedRows:
    """Rows that a committed write added to existing ones, or wrote to an empty target.

    :ivar title: its name in the log
    :ivar attempt: the attempt that wrote them
    :ivar write: Spark's name of the write, a UUID; empty text if it left no files
    :ivar location: the target folder
    :ivar created: whether that folder did not exist before
    :ivar table: the qualified name of the table that the write created; empty text if it created none
    :ivar first: whether Spark allows such a write only on an empty target
    :ivar told: whether its plan distinguishes the write from others. If so, the rows are removed when the same write
        comes again, and stay if it does not. Otherwise they are removed before the script looks.
    """

    title: str
    attempt: int
    write: str
    location: str
    created: bool = False
    table: str = ""
    first: bool = False
    told: bool = False

    @classmethod
    def from_state(cls, state: object, *statuses: str) -> Self | None:
        """Read the recorded state of a committed write with one of *statuses*; ``None`` if it added no rows."""
        if not isinstance(state, dict) or state.get("status") not in statuses or "write" not in state:
            return None
        try:
            title, location, created = str(state["title"]), str(state["location"]), bool(state["created"])
            table, first = str(state["table"]), state.get("mode") == "error"  # older releases did not record the mode
            told = bool(state.get(_TOLD))
            return cls(title, int(state["attempt"]), str(state["write"]), location, created, table, first, told)
        except (KeyError, TypeError, ValueError):
            return None


def rows_made_again(coordinators: Mapping[str, object], epoch: int, moment: str) -> dict[str, AddedRows]:
    """Return the rows that attempts before *epoch* added and *epoch* adds again, by coordinator.

    These are rows that may differ this time, and all rows added where such rows came first, because a write that came
    first is only repeated on an empty target. The first ones come last in the result, after the others are gone.

    :param moment: the moment of *epoch*: functions may read other data for a write than they did at another moment,
        which makes it another write
    """
    states = {name: state for name, state in coordinators.items() if isinstance(state, dict)}
    added = {name: AddedRows.from_state(state, REPEATED, WRITTEN) for name, state in states.items()}
    earlier = {name: rows for name, rows in added.items() if rows is not None and rows.attempt < epoch}
    outdated = {name for name in earlier if at_another_moment(states[name].get(MOMENT, ""), moment)}
    again = {name for name in earlier if states[name]["status"] == REPEATED} | outdated
    anew = {earlier[name].location for name in again if earlier[name].first}
    found = {
        name: replace(rows, told=rows.told and name not in outdated)
        for name, rows in earlier.items()
        if name in again or rows.location in anew
    }
    return dict(sorted(found.items(), key=lambda item: item[1].first))


def of_a_fresh_start(coordinators: Mapping[str, dict[str, Any]], epoch: int) -> dict[str, dict[str, Any]]:
    """Return what attempt *epoch*, which reuses nothing, must take back of attempts that did not finish the job."""
    added = {name for name, state in coordinators.items() if AddedRows.from_state(state, WRITTEN, REPEATED)}
    made_again = {name: {**coordinators[name], "status": REPEATED, _TOLD: False} for name in added}
    return {**{name: coordinators[name] for name in unfinished_writes(coordinators, epoch)}, **made_again}
