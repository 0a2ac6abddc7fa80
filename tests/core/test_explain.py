"""A reader is told what has changed, in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.explain import reasons
from airflow_provider.core.file_set import MOST_FILES, FileSet

FILES = [(f"file:/data/part-{i}", "100", "1") for i in range(3)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"function score": "a"}, {"function score": "b"}, "function 'score' changed"),
        ({}, {"function score": "b"}, "function 'score' is new"),
        ({"module pricing": "a"}, {}, "module 'pricing' is gone"),
        ({"package numpy": "1.26"}, {"package numpy": "2.0"}, "package numpy was 1.26, is 2.0"),
        (
            {"setting spark.sql.session.timeZone": "UTC"},
            {"setting spark.sql.session.timeZone": "Europe/Berlin"},
            "spark.sql.session.timeZone was UTC, is Europe/Berlin",
        ),
        ({}, {"setting spark.sql.ansi.enabled": "false"}, "spark.sql.ansi.enabled was not set, is false"),
        ({"version Spark": "4.1.0"}, {"version Spark": "4.2.0"}, "the version of Spark was 4.1.0, is 4.2.0"),
        ({"upstream totals": "a"}, {"upstream totals": "b"}, "checkpoint 'totals' changed"),
        (
            {"upstream noise": "a@1"},
            {"upstream noise": "a@2"},
            "checkpoint 'noise', which it reads and which is not deterministic, was computed again",
        ),
        ({"given": "a"}, {"given": "b"}, "the version given to checkpoint() was a, is b"),
        ({"table db.t": "12"}, {"table db.t": "13"}, "table db.t was at version 12, is at 13"),
        (
            {"reading open": "first"},
            {"reading open": "cleared"},
            "its functions read something by themselves (open), and nobody knows whether that is as it was: "
            "this attempt is no automatic retry of the one that stored it",
        ),
        ({}, {"reading open": "first"}, "its functions read something by themselves (open)"),
        ({"reading open": "first"}, {}, "its functions read nothing more by themselves (open)"),
        ({"rows": "a"}, {"rows": "b"}, "the rows given to createDataFrame changed"),
        ({"plan": "a"}, {"plan": "b"}, "its plan changed"),
        ({}, {"files file:/data": FileSet.of(FILES).encode()}, "the input under file:/data is new"),
        ({"files file:/data": FileSet.of(FILES).encode()}, {}, "the input under file:/data is not read any more"),
    ],
)
def test_each_kind_of_change_is_named(old: dict[str, str], new: dict[str, str], said: str) -> None:
    """One phrase says what it was and what it is."""
    same = {"plan ": "x", "version the format": "2"}
    assert reasons({**same, **old}, {**same, **new}) == [said]


def test_the_most_telling_reason_comes_first() -> None:
    """A changed function is named before the plan that changed with it."""
    old, new = ({"plan": x, "function f": x, "setting s": x} for x in "ab")
    assert reasons(old, new) == ["function 'f' changed", "s was a, is b", "its plan changed"]


def test_columns_are_named() -> None:
    """Columns that came, went, changed type or place are told by name."""

    def schema(**types: object) -> str:
        return json.dumps({"type": "struct", "fields": [{"name": name, "type": t} for name, t in types.items()]})

    assert reasons({}, {}, schema(a="long", b="long"), schema(a="long", c="long")) == [
        "column 'c' is new",
        "column 'b' is gone",
    ]
    assert reasons({}, {}, schema(a="long"), schema(a={"type": "array"})) == [
        'column \'a\' was long, is {"type":"array"}'
    ]
    assert reasons({}, {}, schema(a="long", b="long"), schema(b="long", a="long")) == [
        "the order of its columns changed"
    ]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ([*FILES, ("file:/data/part-7", "1", "1")], "1 input file is new under /data"),
        ([*FILES, *((f"file:/data/x{i}", "1", "1") for i in range(3))], "3 input files are new under /data"),
        (FILES[:2], "1 input file is gone under /data"),
        ([FILES[0], FILES[1], (FILES[2][0], "100", "2")], "1 input file is changed under /data"),
        (
            [FILES[0], (FILES[1][0], "9", "1"), ("n", "1", "1")],
            "1 input file is new, 1 input file is changed, 1 input file is gone under /data",
        ),
        (FILES, "how the files under /data are read has changed"),
        (
            [(f"{i}", "1", "1") for i in range(MOST_FILES + 1)],
            f"the input under /data was 3 files of 300 bytes, is {MOST_FILES + 1:,} files of {MOST_FILES + 1:,} bytes",
        ),
    ],
)
def test_files_are_counted(now: list[tuple[str, str, str]], said: str) -> None:
    """How many input files are new, changed and gone is told without their names being stored."""
    assert FileSet.of(now).changes_since(FileSet.of(FILES), "/data") == said


files = st.lists(st.tuples(st.text(max_size=5), st.integers(0, 10**12).map(str), st.text(max_size=3)), max_size=20)


@given(files, files)
def test_equal_digests_mean_equal_files(one: list[tuple[str, str, str]], other: list[tuple[str, str, str]]) -> None:
    """The digest is that of the whole set, in any order, and it survives being written down."""
    a, b = FileSet.of(one), FileSet.of(other)
    assert (a.digest == b.digest) == (sorted(one) == sorted(other))
    decoded = FileSet.decode(a.encode())
    assert decoded is not None
    assert (decoded.count, decoded.size, decoded.versions) == (a.count, a.size, a.versions)


def test_ten_thousand_files_stay_small() -> None:
    """What is stored about 10,000 files fits into an event."""
    assert len(FileSet.of((f"s3a://bucket/{i}", "1", "1") for i in range(10_000)).encode()) < 110_000


@pytest.mark.parametrize("text", ["", "a", "a:b:c:d", 'a:1:2:"', "a:1:2:ü"])
def test_what_is_no_file_set_is_not_guessed(text: str) -> None:
    """A value that cannot be read is no file set, and the reason is said in general terms."""
    assert FileSet.decode(text) is None
    assert reasons({"files x": text}, {"files x": "!"}) == ["the input under x changed"]
