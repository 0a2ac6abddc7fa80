"""What a query reads of what its own job has written: rows that are known by the writes that made them. Pure.

A retry may write again what a script reads back: a folder that was moved away, say, or rows that hold the time. Its
files are others then, and yet it is the same query of the same script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider.core.committed_output import Commit, OutputFile, listing_digest, write_of
from airflow_provider.core.digest import digest
from airflow_provider.core.unfinished_write import CALL, MADE, MOMENT, REPEATED, SINK, SOURCES, WRITTEN


@dataclass(frozen=True)
class OutputsRead:
    """What files of one source are the job's own.

    :ivar writes: the writes that made them, as they are remembered
    :ivar stands_for: digest that stands for all of them: of the job's own, what they were made of
    :ivar varying: the titles of those writes whose rows are others in each attempt
    :ivar at_a_moment: whether functions have read something by themselves for any of them
    :ivar alone: whether there are no other files
    """

    writes: tuple[str, ...]
    stands_for: str
    varying: tuple[str, ...]
    at_a_moment: bool
    alone: bool


def outputs_read(
    roots: Sequence[str], files: Iterable[tuple[str, int | str, int | str]], coordinators: Mapping[str, Any]
) -> OutputsRead | None:
    """Return which files are outputs of the job, each of them whole; ``None`` if none is.

    :param roots: the folders, or files, that the query names
    :param coordinators: what is remembered of the job's writes
    """
    written = {name: state for name, state in _committed(coordinators) if state.get(MADE)}
    if not written:
        return None
    by_write: dict[str, list[OutputFile]] = defaultdict(list)
    for path, size, changed in files:
        by_write[write_of(path)].append((path, int(size), int(changed)))
    others = by_write.pop("", [])
    made: dict[str, Mapping[str, Any]] = {}
    names = {}
    for name, state in written.items():
        commit = Commit.from_state(dict(state))
        if commit is not None and commit.write in by_write and commit.is_whole(by_write[commit.write]):
            made[commit.write], names[commit.write] = state, name
    if not made:
        return None
    own = [
        digest(str(state[MADE]), *sorted({_folder(path, roots) for path, _, _ in by_write[write]}))
        for write, state in made.items()
    ]
    others += (file for write, found in by_write.items() if write not in made for file in found)
    return OutputsRead(
        tuple(names.values()),
        digest(str(len(own)), *sorted(own), listing_digest(others)),
        tuple(sorted(str(state.get("title", "")) for state in made.values() if state["status"] == REPEATED)),
        any(state.get(MOMENT) for state in made.values()),
        not others,
    )


@dataclass(frozen=True)
class SourceRead:
    """A source of a write's rows.

    :ivar name: stands for where it is and how it is read; empty text if it is not one of files
    :ivar identity: stands for what it holds
    :ivar writes: those writes of the job that made all that it holds of the job's own
    """

    name: str
    identity: str
    writes: tuple[str, ...] = ()


def made_before(
    call: str,
    sources: Sequence[SourceRead],
    coordinators: Mapping[str, Any],
    epoch: int,
    is_ahead: Callable[[SourceRead], bool],
) -> str:
    """Return which committed write of an earlier attempt than *epoch* a call of the script is, if it reads what came of
    that write, or of later ones: the earlier attempt had read what was there before. Empty text if it is none.

    :param call: stands for the call
    :param is_ahead: whether a source holds what the script has not come to yet in this attempt
    """
    ahead = [is_ahead(source) for source in sources]
    if not call or not any(ahead):
        return ""
    for name, state in _committed(coordinators):
        then = state.get(SOURCES)
        if state.get(CALL) != call or not isinstance(then, list) or len(then) != len(sources):
            continue
        same = (
            isinstance(one, list)
            and ([source.name, source.identity] == one or (new and source.name and [source.name] == one[:1]))
            for source, new, one in zip(sources, ahead, then, strict=True)
        )
        if all(same) and isinstance(attempt := state.get("attempt"), int) and attempt < epoch:
            return name
    return ""


def _committed(coordinators: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the writes that were committed, with what is remembered of each."""
    for name, state in coordinators.items():
        if name.startswith(SINK) and isinstance(state, Mapping) and state.get("status") in (WRITTEN, REPEATED):
            yield name, state


def _folder(path: str, roots: Sequence[str]) -> str:
    """Return the folder of a file below the root that it is found in."""
    folder = path.rpartition("/")[0]
    for root in roots:
        if path == root:
            return ""
        if path.startswith(f"{root.rstrip('/')}/"):
            return folder[len(root.rstrip("/")) :]
    return folder
