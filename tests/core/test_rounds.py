"""Whoever asks for a round may rely on one that began after that."""

from __future__ import annotations

import threading

from airflow_provider.core.rounds import Rounds


def test_whoever_waits_goes_on_when_a_round_that_began_later_is_done() -> None:
    """A round under way does not count: it may have passed by what is asked for."""
    rounds, may_end, begun = Rounds(), threading.Semaphore(0), threading.Semaphore(0)
    rounds.open()

    def work() -> None:
        while (number := rounds.begin(60)) is not None:
            begun.release()
            may_end.acquire()
            rounds.end(number)

    worker = threading.Thread(target=work)
    worker.start()
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
    rounds.close()
    worker.join(60)
    assert not worker.is_alive()


def test_nobody_waits_for_nobody() -> None:
    """Where no thread works, asking is harmless, and waiting returns at once."""
    rounds = Rounds()
    rounds.wait(rounds.ask(), 3600)
    assert rounds.begin(0) is None
