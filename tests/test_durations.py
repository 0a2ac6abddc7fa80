"""Durations of test files: what the end of a run says of them."""

from __future__ import annotations

from tests.support.durations import slower


def test_a_file_that_has_become_slower_is_named() -> None:
    """On a machine of half the speed, the file that takes four times as long is named, and a new long one."""
    kept = {"a.py": 20.0, "b.py": 30.0, "c.py": 40.0, "short.py": 1.0}
    taken = {"a.py": 40.0, "b.py": 60.0, "c.py": 160.0, "short.py": 9.0, "new.py": 50.0}
    assert slower(taken, kept) == ["c.py: 160 s, expected 80 s", "new.py: 50 s, expected 0 s"]


def test_a_run_without_kept_durations_compares_nothing_short() -> None:
    """A newcomer's run of a few tests says nothing."""
    assert slower({"a.py": 2.0}, {}) == []
