"""Recognise inputs that the same job has written, by the writes that made them. Pure.

A retry may write again what a script reads back: a folder that was moved away, say, or rows that contain the time. The
files then differ, yet it is the same query of the same script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider.core.committed_output import Commit, OutputFile, listing_digest, write_of
from airflow_provider.core.digest import digest
from airflow_provider.core.unfinished_write import CALL, MADE, MOMENT, REPEATED, SINK, SOURCES, WRITTEN

_MOST_FILES, _MOST_BYTES = 100, 64 * 1024**2
"""Of what is read to see what files hold: no more than a second or two, from S3, too."""


@dataclass(frozen=True)
class OutputsRead:
    """The files of one source that the job itself wrote.

    :ivar writes: the coordinators of the writes that made them
    :ivar stands_for: digest of the source; the job's own files count by what they were made from
    :ivar varying: titles of the writes whose rows differ between attempts
    :ivar at_a_moment: whether functions read files or services by themselves for any of them
    :ivar alone: whether the source has no other files
    """

    writes: tuple[str, ...]
    stands_for: str
    varying: tuple[str, ...]
    at_a_moment: bool
    alone: bool


def outputs_read(
    roots: Sequence[str], files: Iterable[tuple[str, int | str, int | str]], coordinators: Mapping[str, Any]
) -> OutputsRead | None:
    """Return the files that are complete outputs of the job; ``None`` if there are none.

    :param roots: the folders, or files, that the query names
    :param coordinators: the recorded states of the job's writes, among others
    """
    written = {name: state for name, state in committed(coordinators) if state.get(MADE)}
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


def made_meanwhile(
    roots: Sequence[str],
    files: Iterable[tuple[str, int | str, int | str]],
    began: float,
    held_by: Callable[[str, int | str, int | str], str],
) -> str:
    """Return what stands for files of which some have come since the job began: of those, what they hold. A script that
    writes files by itself, with pandas, say, writes them again in each attempt. Empty text if there are none, or if
    that is too much to read.

    :param roots: the folders, or files, that the query names
    :param began: seconds since the Unix epoch, on this machine's clock: if it is wrong, files count as any other
    :param held_by: returns a digest of what a file holds; it is told path, size and time
    """
    listed = [(path, int(size), int(changed)) for path, size, changed in files]
    new = [file for file in listed if file[2] >= began * 1000]
    if not new or len(new) > _MOST_FILES or sum(size for _, size, _ in new) > _MOST_BYTES:
        return ""
    held = [
        digest(_folder(path, roots), path.rpartition("/")[2].replace(write_of(path), ""), held_by(path, size, changed))
        for path, size, changed in new
    ]
    return digest(str(len(held)), *sorted(held), listing_digest(set(listed).difference(new)))


@dataclass(frozen=True)
class SourceRead:
    """A source that a write reads.

    :ivar name: identifies its place and how it is read; empty text if it does not consist of files
    :ivar identity: identifies its content
    :ivar writes: the job's own writes that made part of its content
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
    """Return the committed write, of an attempt before *epoch*, that a call of the script corresponds to although its
    sources have changed: they now hold what came of that write, or of later ones. Empty text if there is none.

    :param call: identifies the call
    :param is_ahead: whether a source holds something that the script has not reached yet in this attempt
    """
    ahead = [is_ahead(source) for source in sources]
    if not call or not any(ahead):
        return ""
    for name, state in committed(coordinators):
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


def committed(coordinators: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the committed writes, each with its recorded state."""
    for name, state in dict(coordinators).items():
        if name.startswith(SINK) and isinstance(state, Mapping) and state.get("status") in (WRITTEN, REPEATED):
            yield name, state


def _folder(path: str, roots: Sequence[str]) -> str:
    """Return a file's folder, relative to the root that contains it."""
    folder = path.rpartition("/")[0]
    for root in roots:
        if path == root:
            return ""
        if path.startswith(f"{root.rstrip('/')}/"):
            return folder[len(root.rstrip("/")) :]
    return folder
