"""What is repeated, how often, and what a lost answer looks like."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from botocore.exceptions import ConnectionClosedError

from airflow_provider.core.errors import (
    ObjectExists,
    StoreError,
    StoreUnavailable,
)
from airflow_provider.storage.object_store import requests_repeated
from airflow_provider.storage.s3_retry import RetryPolicy
from tests.storage.s3_faults import fault_name, s3_store
from tests.support.http_faults import Answer, BreakOff, Drop, FaultyServer, LoseAnswer, times


@pytest.mark.parametrize(
    "fault",
    [
        Answer(500, "InternalError"),
        Answer(502, "BadGateway"),
        Answer(503, "SlowDown"),
        Answer(503, "ServiceUnavailable"),
        Answer(409, "ConditionalRequestConflict"),
        Answer(400, "RequestTimeout"),
        Answer(429, "TooManyRequests"),
        Drop(),
    ],
    ids=fault_name,
)
def test_a_passing_failure_is_repeated(proxy: FaultyServer, fault: Answer | Drop) -> None:
    """Every kind of failure that a second request can cure is cured by the third one; both repetitions are counted."""
    before = requests_repeated()
    store = s3_store(proxy.endpoint)
    proxy.fault = times(2, fault, "PUT")
    store.put_new("a", b"content")
    assert store.get("a") == b"content"
    assert proxy.count("PUT") == 3
    assert requests_repeated() == before + 2


@pytest.mark.parametrize(
    "fault",
    [Answer(403, "AccessDenied"), Answer(400, "InvalidArgument"), Answer(501, "NotImplemented")],
    ids=fault_name,
)
def test_a_lasting_failure_is_not_repeated(proxy: FaultyServer, fault: Answer) -> None:
    """One request is enough where the answer would be the same again, and botocore adds none of its own."""
    proxy.fault = lambda request: fault
    with pytest.raises(StoreError):
        s3_store(proxy.endpoint).put_new("a", b"")
    assert proxy.count("PUT") == 1


def test_repetition_is_bounded_in_number(proxy: FaultyServer) -> None:
    """A server that keeps failing is asked six times, not more: botocore's own retries are off."""
    proxy.fault = lambda request: Answer(503, "SlowDown")
    with pytest.raises(StoreUnavailable) as caught:
        s3_store(proxy.endpoint).put_new("a", b"")
    assert proxy.count("PUT") == 6
    assert proxy.endpoint in str(caught.value)
    assert "SlowDown" in str(caught.value)
    assert caught.value.retryable


def test_repetition_is_bounded_in_time(proxy: FaultyServer) -> None:
    """No request is sent after the deadline, however many attempts were left."""
    proxy.fault = lambda request: Answer(503, "SlowDown")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        s3_store(proxy.endpoint, retry=RetryPolicy(attempts=1000, first_pause=0.05, deadline=0.5)).get("a")
    assert time.monotonic() - began < 10
    assert 2 <= proxy.count("GET") < 10


def test_the_default_policy_gives_up_within_half_a_minute() -> None:
    """Six requests, pauses that double with jitter, none later than 15 s; a request waits at most 15 s for bytes."""
    policy = RetryPolicy()
    assert policy.attempts == 6
    longest = sum(min(policy.longest_pause, policy.first_pause * 2**n) for n in range(5))
    assert longest < policy.deadline <= 15
    client = s3_store("http://127.0.0.1:1")._client
    assert client.meta.config.connect_timeout + client.meta.config.read_timeout + policy.deadline <= 35  # type: ignore[attr-defined]


def test_a_lost_answer_to_a_creation_shows_as_existing_with_our_content(proxy: FaultyServer) -> None:
    """The repeated create-only PUT finds our own object; whoever compares the content knows that it is theirs."""
    store = s3_store(proxy.endpoint)
    proxy.fault = times(1, LoseAnswer(), "PUT")
    with pytest.raises(ObjectExists):
        store.put_new("a", b"ours")
    assert store.get("a") == b"ours"


def test_a_download_that_breaks_off_is_read_again(proxy: FaultyServer, tmp_path: Path) -> None:
    """An answer whose body ends early counts as no answer."""
    store = s3_store(proxy.endpoint)
    store.put("a", b"x" * 1000)
    proxy.fault = times(1, BreakOff(10), "GET")
    store.download("a", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x" * 1000
    proxy.fault = times(1, BreakOff(999), "GET")
    assert store.get("a") == b"x" * 1000


def test_many_that_fail_at_once_do_not_come_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each pause one half is chance: hundred clients spread over it, and none comes back at once."""
    pauses: list[float] = []
    mine, sleep = threading.get_ident(), time.sleep

    def pause(seconds: float) -> None:
        """Note the pauses of this thread; threads that other tests left behind sleep as they do."""
        if threading.get_ident() == mine:
            pauses.append(seconds)
        else:
            sleep(seconds)

    def fail() -> None:
        raise ConnectionClosedError(endpoint_url="http://store")

    monkeypatch.setattr("tenacity.nap.time.sleep", pause)
    for _ in range(100):
        with pytest.raises(ConnectionClosedError):
            RetryPolicy(attempts=5, first_pause=1.0, longest_pause=100.0).call(fail)
    for turn, longest in enumerate((1.0, 2.0, 4.0, 8.0)):
        of_turn = pauses[turn::4]
        assert longest / 2 <= min(of_turn) < 0.6 * longest
        assert 0.9 * longest < max(of_turn) <= longest
