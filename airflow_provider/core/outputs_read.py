"""What a query reads of what its own job has written: rows that are known by the writes that made them. Pure.

A retry may write again what a script reads back: a folder that was moved away, say, or rows that hold the time. Its
files are others then, and yet it is the same query of the same script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider.core.committed_output import Commit, OutputFile, listing_digest, write_of
from airflow_provider.core.digest import digest
from airflow_provider.core.unfinished_write import MADE, MOMENT, REPEATED, SINK, WRITTEN


@dataclass(frozen=True)
class OutputsRead:
    """What files of one source are the job's own.

    :ivar stands_for: digest that stands for all of them: of the job's own, what they were made of
    :ivar varying: the titles of those writes whose rows are others in each attempt
    :ivar at_a_moment: whether functions have read something by themselves for any of them
    """

    stands_for: str
    varying: tuple[str, ...]
    at_a_moment: bool


def outputs_read(
    roots: Sequence[str], files: Iterable[OutputFile], coordinators: Mapping[str, Any]
) -> OutputsRead | None:
    """Return which files are outputs of the job, each of them whole; ``None`` if none is.

    :param roots: the folders, or files, that the query names
    :param coordinators: what is remembered of the job's writes
    """
    by_write: dict[str, list[OutputFile]] = defaultdict(list)
    for file in files:
        by_write[write_of(file[0])].append(file)
    others = by_write.pop("", [])
    made = {}
    for name, state in coordinators.items():
        if name.startswith(SINK) and isinstance(state, Mapping) and state.get("status") in (WRITTEN, REPEATED):
            commit = Commit.from_state(dict(state))
            if commit and commit.write in by_write and state.get(MADE) and commit.is_whole(by_write[commit.write]):
                made[commit.write] = state
    if not made:
        return None
    own = [
        digest(str(state[MADE]), *sorted({_folder(path, roots) for path, _, _ in by_write[write]}))
        for write, state in made.items()
    ]
    others += (file for write, found in by_write.items() if write not in made for file in found)
    return OutputsRead(
        digest(str(len(own)), *sorted(own), listing_digest(others)),
        tuple(sorted(str(state["title"]) for state in made.values() if state["status"] == REPEATED)),
        any(state.get(MOMENT) for state in made.values()),
    )


def _folder(path: str, roots: Sequence[str]) -> str:
    """Return the folder of a file below the root that it is found in."""
    folder = path.rpartition("/")[0]
    for root in roots:
        if path == root:
            return ""
        if path.startswith(f"{root.rstrip('/')}/"):
            return folder[len(root.rstrip("/")) :]
    return folder
