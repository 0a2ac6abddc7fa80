"""Whoever asks for a round may rely on one that began after that."""

from __future__ import annotations

import threading

import pytest

from airflow_provider.core.rounds import Rounds


def test_whoever_waits_goes_on_when_a_round_that_began_later_is_done() -> None:
    """A round under way does not count: it may have passed by what is asked for."""
    rounds, may_end, begun = Rounds(), threading.Semaphore(0), threading.Semaphore(0)

    def work() -> float:
        begun.release()
        may_end.acquire()
        return 60

    with rounds.at_work("test", work, 60):
        rounds.ask()
        begun.acquire()
        waiter = threading.Thread(target=lambda: rounds.wait(rounds.ask(), 60))
        waiter.start()
        may_end.release()
        begun.acquire()
        assert waiter.is_alive()
        may_end.release()
        waiter.join(60)
        assert not waiter.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fails", [False, True])
def test_who_works_no_more_lets_nobody_wait(fails: bool) -> None:
    """A round that says that it was the last one, or fails, ends the wait of all."""
    rounds, known = Rounds(), threading.Event()

    def work() -> None:
        known.wait(60)
        if fails:
            raise ValueError

    with rounds.at_work("test", work, 60):
        waiter = threading.Thread(target=lambda: rounds.wait(rounds.ask() + 1, 3600))
        waiter.start()
        known.set()
        waiter.join(60)
        assert not waiter.is_alive()
        rounds.wait(rounds.ask(), 3600)


def test_nobody_waits_for_nobody() -> None:
    """Where no thread works, asking is harmless, and waiting returns at once; so it is when the block has ended."""
    rounds = Rounds()
    rounds.wait(rounds.ask(), 3600)
    with rounds.at_work("test", lambda: 0.0, 60):
        pass
    rounds.wait(rounds.ask(), 3600)
    assert rounds.ask() == 3
