"""Decide whether to restart after a failure, and after which delay: Flink's four restart strategies.

A strategy is immutable. Its state is a :class:`RestartMemory` of plain values, which goes into the job event store with
each failure, so that the counters survive the driver.

Source: Flink's ``RestartBackoffTimeStrategy`` and its implementations, with their parameters and defaults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from airflow_provider.core.option_types import UNLIMITED
from airflow_provider.core.options import RecoveryOptions


@dataclass(frozen=True)
class RestartMemory:
    """A strategy's state between failures. Times are seconds since the Unix epoch.

    :ivar failures: number of failures, since the last reset for strategies that reset
    :ivar times: when the newest failures happened
    :ivar backoff: seconds of the last delay, without jitter
    """

    failures: int = 0
    times: tuple[float, ...] = ()
    backoff: float = 0.0

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> RestartMemory:
        """Read what :meth:`to_json` wrote; an empty mapping gives a memory without failures."""
        return cls(
            int(state.get("failures", 0)), tuple(map(float, state.get("times", ()))), float(state.get("backoff", 0))
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "times": list(self.times)}


class RestartStrategy(Protocol):
    """Decides about restarts."""

    def after_failure(self, memory: RestartMemory, now: float) -> RestartMemory:
        """Return the memory after a failure at *now*."""

    def can_restart(self, memory: RestartMemory) -> bool:
        """Whether to restart after the last failure."""

    def delay(self, memory: RestartMemory) -> float:
        """Return the seconds to wait before that restart."""


@dataclass(frozen=True)
class NoRestart:
    """Every failure ends the attempt."""

    def after_failure(self, memory: RestartMemory, now: float) -> RestartMemory:
        """Count it."""
        return RestartMemory(memory.failures + 1, (now,))

    def can_restart(self, memory: RestartMemory) -> bool:
        """Never."""
        return False

    def delay(self, memory: RestartMemory) -> float:
        """None."""
        return 0.0


@dataclass(frozen=True)
class FixedDelay:
    """A fixed number of restarts over the life of the job, each after the same delay."""

    attempts: int = 1
    seconds: float = 1.0

    def after_failure(self, memory: RestartMemory, now: float) -> RestartMemory:
        """Count it."""
        return RestartMemory(memory.failures + 1, (now,))

    def can_restart(self, memory: RestartMemory) -> bool:
        """Whether the failures do not exceed the allowed restarts."""
        return memory.failures <= self.attempts

    def delay(self, memory: RestartMemory) -> float:
        """Always the same."""
        return self.seconds


@dataclass(frozen=True)
class FailureRate:
    """Restarts unless too many failures fall into an interval."""

    max_failures_per_interval: int = 1
    interval: float = 60.0
    seconds: float = 1.0

    def after_failure(self, memory: RestartMemory, now: float) -> RestartMemory:
        """Remember the times of the newest failures, one more than allowed."""
        times = (*memory.times, now)[-(self.max_failures_per_interval + 1) :]
        return RestartMemory(memory.failures + 1, times)

    def can_restart(self, memory: RestartMemory) -> bool:
        """Whether the remembered failures, one more than allowed, do not all lie within the interval."""
        if len(memory.times) <= self.max_failures_per_interval:
            return True
        return memory.times[-1] - memory.times[0] > self.interval

    def delay(self, memory: RestartMemory) -> float:
        """Always the same."""
        return self.seconds


@dataclass(frozen=True)
class ExponentialDelay:
    """A delay that grows with each failure, and resets once the job has run well for a while.

    :param jitter: returns a number from -1 to 1
    """

    initial_backoff: float = 1.0
    max_backoff: float = 60.0
    backoff_multiplier: float = 1.5
    reset_backoff_threshold: float = 3600.0
    jitter_factor: float = 0.1
    attempts_before_reset_backoff: int = UNLIMITED
    jitter: Callable[[], float] = lambda: random.uniform(-1, 1)  # noqa: S311 - not for security: it spreads restarts

    def after_failure(self, memory: RestartMemory, now: float) -> RestartMemory:
        """Grow the delay, or reset it if the last failure is long past."""
        calm = not memory.times or now - memory.times[-1] >= self.reset_backoff_threshold + memory.backoff
        if calm:
            return RestartMemory(1, (now,), self.initial_backoff)
        grown = min(self.max_backoff, max(self.initial_backoff, memory.backoff * self.backoff_multiplier))
        return replace(memory, failures=memory.failures + 1, times=(now,), backoff=grown)

    def can_restart(self, memory: RestartMemory) -> bool:
        """Whether the failures since the last reset do not exceed the allowed ones."""
        return memory.failures <= self.attempts_before_reset_backoff

    def delay(self, memory: RestartMemory) -> float:
        """The backoff with jitter, never above the maximum."""
        return min(self.max_backoff, memory.backoff * (1 + self.jitter_factor * self.jitter()))


def restart_strategy(options: RecoveryOptions) -> RestartStrategy:
    """Return the strategy that *options* select."""
    o = options
    strategies: dict[str, Callable[[], RestartStrategy]] = {
        "none": NoRestart,
        "fixed-delay": lambda: FixedDelay(
            o.restart_strategy_fixed_delay_attempts, o.restart_strategy_fixed_delay_delay
        ),
        "failure-rate": lambda: FailureRate(
            o.restart_strategy_failure_rate_max_failures_per_interval,
            o.restart_strategy_failure_rate_failure_rate_interval,
            o.restart_strategy_failure_rate_delay,
        ),
        "exponential-delay": lambda: ExponentialDelay(
            o.restart_strategy_exponential_delay_initial_backoff,
            o.restart_strategy_exponential_delay_max_backoff,
            o.restart_strategy_exponential_delay_backoff_multiplier,
            o.restart_strategy_exponential_delay_reset_backoff_threshold,
            o.restart_strategy_exponential_delay_jitter_factor,
            o.restart_strategy_exponential_delay_attempts_before_reset_backoff,
        ),
    }
    return strategies[o.restart_strategy]()
