"""Telling DAG runs of one name apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow_provider.core.job import is_another_run, run_mark

BEGAN = datetime(2026, 11, 23, 1, 0, 0, 123456, tzinfo=UTC)


def test_tries_of_one_run_have_one_mark() -> None:
    """As long as it is not cleared."""
    assert run_mark(BEGAN, 0) == run_mark(BEGAN, None) == "0@2026-11-23T01:00:00.123456+00:00"


def test_another_run() -> None:
    """Cleared equally often, begun at another moment and of another name; what is not known may be the same."""
    mark, later = run_mark(BEGAN, 1), BEGAN + timedelta(microseconds=1)
    assert is_another_run(mark, run_mark(later, 1))
    assert not is_another_run(mark, mark)
    assert not is_another_run(mark, run_mark(later, 2))
    assert not is_another_run(mark, "")
    assert not is_another_run("", mark)
    assert not is_another_run("nonsense", mark)
    assert not is_another_run(run_mark(BEGAN, 1, "a"), run_mark(later, 1, "a"))
    assert is_another_run(run_mark(BEGAN, 1, "a"), run_mark(later, 1, "b"))
    assert is_another_run(mark, run_mark(later, 1, "b"))
    assert not is_another_run(mark, run_mark(BEGAN, 1, "b"))
