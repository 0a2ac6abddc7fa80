"""The four restart strategies decide as Flink's do, and what they remember survives as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.option_types import UNLIMITED
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.restart_strategy import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartMemory,
    RestartStrategy,
    restart_strategy,
)

STRATEGIES: list[RestartStrategy] = [
    NoRestart(),
    FixedDelay(3, 2.0),
    FailureRate(2, 10.0, 1.0),
    ExponentialDelay(1.0, 8.0, 2.0, 100.0, 0.0, 5),
]


def fail(strategy: RestartStrategy, *times: float) -> RestartMemory:
    memory = RestartMemory()
    for time in times:
        memory = strategy.after_failure(memory, time)
    return memory


def test_none_never_restarts() -> None:
    assert not NoRestart().can_restart(fail(NoRestart(), 1))


def test_fixed_delay_counts_over_the_life_of_the_job() -> None:
    """Three restarts, however far apart, each after two seconds."""
    strategy = FixedDelay(3, 2.0)
    assert [strategy.can_restart(fail(strategy, *range(0, n * 10**6, 10**6))) for n in (1, 3, 4)] == [True, True, False]
    assert strategy.delay(fail(strategy, 1)) == 2.0


def test_failure_rate_looks_at_an_interval() -> None:
    """Two failures in ten seconds are allowed, a third one is not; spread wider they may go on without end."""
    strategy = FailureRate(2, 10.0, 1.0)
    assert strategy.can_restart(fail(strategy, 0, 1))
    assert not strategy.can_restart(fail(strategy, 0, 1, 2))
    assert strategy.can_restart(fail(strategy, *range(0, 600, 6)))


def test_exponential_delay_grows_is_capped_and_starts_over() -> None:
    """1, 2, 4, 8, 8 …; after a calm that is longer than the threshold and the last delay: 1 again."""
    strategy = ExponentialDelay(1.0, 8.0, 2.0, 100.0, 0.0)
    assert [strategy.delay(fail(strategy, *range(n))) for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 8, 8]
    assert strategy.delay(fail(strategy, 0, 1, 2, 2 + 104)) == 1
    assert strategy.delay(fail(strategy, 0, 1, 2, 2 + 103)) == 8
    limited = ExponentialDelay(1.0, 8.0, 2.0, 100.0, 0.0, attempts_before_reset_backoff=2)
    assert [limited.can_restart(fail(limited, *range(n))) for n in (1, 2, 3)] == [True, True, False]
    assert limited.can_restart(fail(limited, 0, 1, 2, 1000))


@given(st.floats(-1, 1), st.integers(1, 30))
def test_jitter_stays_within_its_share_and_below_the_maximum(jitter: float, failures: int) -> None:
    """A tenth more or less, never above the maximum."""
    strategy = ExponentialDelay(1.0, 8.0, 2.0, 100.0, 0.1, jitter=lambda: jitter)
    memory = fail(strategy, *range(failures))
    assert memory.backoff * 0.9 <= strategy.delay(memory) <= min(8.0, memory.backoff * 1.1)


@given(st.sampled_from(STRATEGIES), st.lists(st.floats(0, 10**9), max_size=12).map(sorted), st.data())
def test_the_memory_survives_the_driver(strategy: RestartStrategy, times: list[float], data: st.DataObject) -> None:
    """Written as JSON and read again after any failure, a strategy decides as if nothing had happened."""
    cut = data.draw(st.integers(0, len(times)))
    before = fail(strategy, *times[:cut])
    after = RestartMemory.from_json(json.loads(json.dumps(before.to_json())))
    assert after == before
    for time in times[cut:]:
        before, after = strategy.after_failure(before, time), strategy.after_failure(after, time)
        assert strategy.can_restart(before) == strategy.can_restart(after)
        assert strategy.delay(before) == strategy.delay(after) or isinstance(strategy, ExponentialDelay)
        assert len(after.times) <= 3  # however many failures there are, little is remembered


def test_defaults_are_flinks() -> None:
    """Fixed delay, one restart after a second; the others with Flink's parameters."""
    assert restart_strategy(RecoveryOptions()) == FixedDelay(1, 1.0)
    options = {"restart_strategy": "failure-rate"}
    assert restart_strategy(RecoveryOptions.from_mapping(options)) == FailureRate(1, 60.0, 1.0)
    strategy = restart_strategy(RecoveryOptions.from_mapping({"restart_strategy": "exponential-delay"}))
    assert isinstance(strategy, ExponentialDelay)
    told = (strategy.initial_backoff, strategy.max_backoff, strategy.backoff_multiplier)
    assert told == (1.0, 60.0, 1.5)
    assert (strategy.reset_backoff_threshold, strategy.jitter_factor) == (3600.0, 0.1)
    assert strategy.attempts_before_reset_backoff == UNLIMITED
    assert restart_strategy(RecoveryOptions.from_mapping({"restart_strategy": "none"})) == NoRestart()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("restart_strategy", "sometimes"),
        ("failover_strategy", "none"),
        ("restart_strategy_fixed_delay_attempts", "-1"),
        ("restart_strategy_fixed_delay_attempts", "1.5"),
        ("restart_strategy_fixed_delay_delay", "soon"),
        ("restart_strategy_exponential_delay_jitter_factor", "2"),
        ("restart_strategy_exponential_delay_backoff_multiplier", "nan"),
    ],
)
def test_wrong_parameters_are_named(name: str, value: str) -> None:
    """Each is refused with its name and what it must be."""
    with pytest.raises(ConfigurationError, match=name):
        RecoveryOptions.from_mapping({name: value})


def test_infinite_is_a_number_of_restarts() -> None:
    """As Flink writes it."""
    options = RecoveryOptions.from_mapping({"restart_strategy_fixed_delay_attempts": "infinite"})
    assert options.restart_strategy_fixed_delay_attempts == UNLIMITED
    assert RecoveryOptions.from_mapping(options.to_mapping()) == options
