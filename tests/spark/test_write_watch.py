"""The thread that learns Spark's name of a write while it runs."""

from __future__ import annotations

import threading

import pytest

from airflow_provider.spark.sinks.write_watch import pause_after, watched_write


def test_the_first_name_is_remembered_once() -> None:
    """Looks that fail or see nothing are repeated; what is found is handed on once, and the looking ends."""
    looks = iter([OSError("no such folder"), set(), {"u"}, {"v"}])
    seen: list[set[str]] = []
    done = threading.Event()

    def look() -> set[str]:
        result = next(looks)
        if isinstance(result, OSError):
            raise result
        return result  # type: ignore[return-value]

    def found(names: set[str]) -> None:
        seen.append(names)
        done.set()

    with watched_write(look, found):
        assert done.wait(20)
    assert seen == [{"u"}]
    assert next(looks) == {"v"}


def test_nothing_is_remembered_after_the_end() -> None:
    """A name that is found when the write has ended is not remembered: it would hide how the write ended."""
    looking, ended, looked = threading.Event(), threading.Event(), threading.Event()
    seen: list[set[str]] = []

    def look() -> set[str]:
        looking.set()
        ended.wait(20)
        looked.set()
        return {"u"}

    with watched_write(look, seen.append):
        assert looking.wait(20)
    ended.set()
    assert looked.wait(20)
    for thread in threading.enumerate():
        if thread.name == "watch-write":
            thread.join(20)
    assert seen == []


def test_a_write_that_fails_fails_as_before() -> None:
    """Its own error comes out, and the thread ends with it."""
    with pytest.raises(ValueError, match="no space"), watched_write(set, lambda _: None):
        raise ValueError("no space")


def test_looking_costs_little_where_a_look_is_slow() -> None:
    """Pauses are short at first, and longer in a long write and where a look takes long, as in a store of objects."""
    assert pause_after(0.0, 0.0) == 0.02
    assert pause_after(5.0, 0.001) == pytest.approx(0.1)
    assert pause_after(3600.0, 0.0) == 0.25
    assert pause_after(0.0, 0.1) == pytest.approx(2.0)
