"""Sources that are the job's own outputs stand for what those were made of; all else stands for its files."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.committed_output import Commit, OutputFile
from airflow_provider.core.outputs_read import OutputsRead, SourceRead, made_before, outputs_read
from airflow_provider.core.unfinished_write import MADE, MOMENT, REPEATED, SINK, WRITTEN

STRANGER = ("file:/stage/theirs.parquet", 5, 5)


def files_of(write: uuid.UUID, folder: str = "file:/stage", time: int = 7) -> list[OutputFile]:
    return [(f"{folder}/day={day}/part-0000{day}-{write}.c000.snappy.parquet", 10 + day, time) for day in range(3)]


def state_of(write: uuid.UUID, made: str = "rows", status: str = WRITTEN, **more: Any) -> dict[str, Any]:
    commit = Commit.named(str(write), files_of(write))
    return {"status": status, "title": "file:/stage", MADE: made, **commit.to_state(), **more}


def read(files: list[OutputFile], *states: dict[str, Any], root: str = "file:/stage") -> OutputsRead | None:
    return outputs_read([root], files, {f"{SINK}{number}": state for number, state in enumerate(states)})


ONE, TWO = uuid.uuid4(), uuid.uuid4()


def test_another_writes_files_of_the_same_rows_stand_for_the_same() -> None:
    """Wherever they lie, and whenever they were written; not where they lie in other folders below, or have others
    beside them.
    """
    first = read(files_of(ONE), state_of(ONE))
    assert first is not None
    assert first == read(files_of(TWO), state_of(TWO))
    assert first == read(files_of(ONE, "s3a://moved"), state_of(ONE), root="s3a://moved")
    assert first != read(files_of(ONE, "s3a://moved"), state_of(ONE), root="s3a://")
    assert first != read(files_of(ONE), state_of(ONE, "other rows"))
    assert first != read([*files_of(ONE), STRANGER], state_of(ONE))
    assert first != read([*files_of(ONE), *files_of(TWO)], state_of(ONE), state_of(TWO))
    assert first == read(files_of(ONE), state_of(ONE), state_of(TWO, "other rows"))


@pytest.mark.parametrize(
    "changed",
    [
        files_of(ONE)[:2],
        files_of(ONE, time=8),
        [*files_of(ONE)[:2], (*files_of(ONE)[2][:1], 99, 7)],
        [*files_of(ONE), (f"file:/stage/part-00009-{ONE}.c000.snappy.parquet", 1, 7)],
        [STRANGER],
        [],
    ],
)
def test_what_is_not_whole_is_not_the_jobs_own(changed: list[OutputFile]) -> None:
    """A file is missing, was changed, or was added: they are files like others."""
    assert read(changed, state_of(ONE)) is None


@pytest.mark.parametrize(
    "state",
    [
        state_of(ONE, ""),
        state_of(ONE, status="UNKNOWN"),
        state_of(ONE, status="WRITING"),
        {**state_of(ONE), "contents": ""},
        {**state_of(ONE), "files": "?"},
        {name: value for name, value in state_of(ONE).items() if name not in (MADE, "contents")},
        {**Commit.of_nothing().to_state(), "status": WRITTEN, MADE: "rows"},
    ],
)
def test_what_is_not_known_of_a_write_is_not_guessed(state: dict[str, Any]) -> None:
    """Nor what an older release has remembered, nor a write that has left no files."""
    assert read(files_of(ONE), state) is None


def test_rows_that_vary_are_named() -> None:
    """And so is whether functions have read something by themselves."""
    certain, varying = read(files_of(ONE), state_of(ONE)), read(files_of(ONE), state_of(ONE, status=REPEATED))
    assert certain is not None
    assert varying is not None
    assert (certain.varying, varying.varying) == ((), ("file:/stage",))
    at_a_moment = read(files_of(ONE), state_of(ONE, **{MOMENT: "then"}))
    assert at_a_moment is not None
    assert (certain.at_a_moment, at_a_moment.at_a_moment) == (False, True)


@given(st.permutations([*files_of(ONE), *files_of(TWO), STRANGER]), st.booleans())
def test_the_order_does_not_count(files: list[OutputFile], turned: bool) -> None:
    """Neither of the files nor of what is remembered."""
    states = [state_of(ONE, "a"), state_of(TWO, "b")]
    assert read(files, *states[:: -1 if turned else 1]) == read([*files_of(ONE), *files_of(TWO), STRANGER], *states)


CALL = {**state_of(ONE), "call": "the call", "sources": [["table", "old"], ["orders", "same"]], "attempt": 1}
NOW = [SourceRead("table", "new", ("sink/later",)), SourceRead("orders", "same")]


def found(call: str = "the call", sources: list[SourceRead] = NOW, epoch: int = 2, **state: Any) -> str:
    return made_before(call, sources, {"sink/0": {**CALL, **state}}, epoch, lambda source: bool(source.writes))


def test_a_call_that_reads_what_came_of_it_is_the_earlier_one() -> None:
    """What is ahead of the script is told by its name, all else by what it holds."""
    assert found() == "sink/0"
    assert found(sources=[SourceRead("table", "old", ("sink/later",)), NOW[1]]) == "sink/0"
    assert found(status=REPEATED) == "sink/0"


@pytest.mark.parametrize(
    "other",
    [
        {"call": "another"},
        {"call": ""},
        {"epoch": 1},
        {"status": "WRITING"},
        {"status": "TAKEN_BACK"},
        {"sources": [SourceRead("table", "new"), NOW[1]]},
        {"sources": [SourceRead("elsewhere", "new", ("sink/later",)), NOW[1]]},
        {"sources": [SourceRead("", "new", ("sink/later",)), NOW[1]]},
        {"sources": [NOW[0], SourceRead("orders", "others")]},
        {"sources": NOW[:1]},
        {"sources": [*NOW, NOW[1]]},
    ],
    ids=str,
)
def test_any_other_call_is_none(other: dict[str, Any]) -> None:
    """Nothing of what it reads is ahead, something else has changed, or the earlier one was not committed."""
    assert found(**other) == ""


@pytest.mark.parametrize("sources", [None, "?", [], [["table"]], [["table", "old"], "orders"], [1, 2]])
def test_what_is_remembered_is_checked(sources: Any) -> None:
    """Older releases, and others, may have left anything."""
    kept = {**CALL, "sources": sources}
    assert made_before("the call", NOW, {"sink/0": kept}, 2, lambda source: bool(source.writes)) == ""
