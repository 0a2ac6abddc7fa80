"""The options of recovery, their defaults and how they are written.

One dataclass serves the connection form, the operator's parameters and the command line, so that an option means the
same and is spelled the same everywhere. Durations are seconds, sizes bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from airflow_provider.recovery.errors import ConfigurationError
from airflow_provider.recovery.lease import Lease

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = (
    f"SPARK_RECOVERY_AWS_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
)
"""Environment variables of a driver: the event store's credentials, which are none of the job's own."""
INTEGRITY_SECRET = "SPARK_RECOVERY_INTEGRITY_SECRET"  # noqa: S105 - the name of one
"""Environment variable of drivers, executors and the command line: what seals the objects of the event store."""

_DURATION_UNITS = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "min": 60,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "days": 86400,
    "day": 86400,
}
_SIZE_UNITS = {"b": 1, "": 1}
for _power, _letter in enumerate("kmgt", start=1):
    for _suffix in (_letter, f"{_letter}b", f"{_letter}ib"):
        _SIZE_UNITS[_suffix] = 1024**_power

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zA-Z]*)\s*", re.ASCII | re.IGNORECASE)


def parse_duration(value: object, option: str) -> float:
    """Return seconds from a number (seconds) or text such as ``30 s``, ``500ms``, ``3 min``, ``7 days``."""
    return _parse(value, _DURATION_UNITS | {"": 1}, option, "a duration such as '30 s', '3 min' or '7 days'")


def parse_size(value: object, option: str) -> int:
    """Return bytes from a number (bytes) or text such as ``1 MiB``, ``1m``, ``512 kb`` (powers of 1,024)."""
    return int(_parse(value, _SIZE_UNITS, option, "a size such as '1 MiB' or '512 kb'"))


def parse_flag(value: object, option: str) -> bool:
    """Return a boolean from a boolean or from ``true``/``false``, ``yes``/``no``, ``on``/``off``, ``1``/``0``."""
    text = str(value).strip().lower()
    if text in {"true", "yes", "on", "1"}:
        return True
    if text in {"false", "no", "off", "0"}:
        return False
    raise _bad(option, value, "true or false")


def _parse(value: object, units: Mapping[str, float], option: str, expected: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    if match is None or match[2].lower() not in units:
        raise _bad(option, value, expected)
    number = float(match[1]) * units[match[2].lower()]
    if not math.isfinite(number):
        raise _bad(option, value, expected)
    return number


def _bad(option: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"Option {option!r} has the value {value!r}.", remedy=f"It must be {expected}.", option=option
    )


UNLIMITED = 2**31 - 1
"""Written ``infinite``; the number is Flink's."""


@dataclass(frozen=True)
class _Options:
    """What both groups of options can do."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], base: Self | None = None) -> Self:
        """Return *base* (or the defaults) with *values* laid over it; ``None`` and empty text change nothing.

        :param values: option name, with ``_`` or ``-``, to its value as text or as a plain value
        :raises ConfigurationError: an option is unknown or its value cannot be read
        """
        known = {field.name for field in fields(cls)}
        changes: dict[str, Any] = {}
        for raw_name, value in values.items():
            name = raw_name.replace("-", "_")
            if name not in known:
                raise ConfigurationError(
                    f"Unknown recovery option {raw_name!r}.", remedy=f"Known options: {', '.join(sorted(known))}."
                )
            if value is not None and value != "":
                changes[name] = _READERS[name](value, name)
        return replace(base or cls(), **changes)

    def to_mapping(self) -> dict[str, Any]:
        """Return the options that are set, as plain values that :meth:`from_mapping` reads back."""
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name) != ""}

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as :meth:`to_mapping` does."""
        defaults = type(self)()
        return {name: value for name, value in self.to_mapping().items() if value != getattr(defaults, name)}


@dataclass(frozen=True)
class RecoveryOptions(_Options):
    """How a job is recorded and recovered. The names in brackets are Flink's (FLIP-383)."""

    enabled: bool = True
    """Record and recover at all. [execution.batch.job-recovery.enabled]"""
    previous_worker_recovery_timeout: float = 30.0
    """Seconds for which a driver owns its job after a confirmed heartbeat: its lease. Others take the job over no
    sooner than one heartbeat after that. [….previous-worker.recovery.timeout]"""
    ownership_timeout: float = 300.0
    """Most seconds that a write waits for the store when the lease has run out; then the attempt fails."""
    write_buffer_size: int = 1024**2
    """Bytes of events that trigger a flush. [job-event.store.write-buffer.size]"""
    write_buffer_flush_interval: float = 1.0
    """Most seconds an event waits to be flushed. [job-event.store.write-buffer.flush-interval]"""
    snapshot_min_pause: float = 180.0
    """Seconds between two snapshots, unless a vertex ends. [….operator-coordinator-snapshot.min-pause]"""
    retention: float = 7 * 86400.0
    """Seconds that a job which is not at work is kept; ``spark-recovery gc`` deletes older ones."""
    resume: str = "auto"
    """``auto``: go on from what survived; ``never``: start afresh at every try."""
    recovery_points: str = "explicit"
    """``auto``: keep what shuffles have written, beside what the script names; ``explicit``: only what it names."""
    overhead_budget: float = 0.1
    """Seconds that auto mode may spend on copying map outputs for one second of computing."""
    sinks: str = "once"
    """``once``: an output that an earlier attempt has committed is not written again; ``repeat``: it is."""
    unknown_sinks: str = "warn"
    """What a retry does before it adds rows again where nobody can tell whether an earlier attempt has: ``warn`` or
    ``fail``."""
    failover_strategy: str = "region"
    """What is restarted inside the application when a vertex fails: ``region`` or ``full``.
    [jobmanager.execution.failover-strategy]"""
    restart_strategy: str = "fixed-delay"
    """When: ``none``, ``fixed-delay``, ``failure-rate`` or ``exponential-delay``. [restart-strategy.type]"""
    restart_strategy_fixed_delay_attempts: int = 1
    """Restarts over the life of the job. [restart-strategy.fixed-delay.attempts]"""
    restart_strategy_fixed_delay_delay: float = 1.0
    """Seconds before each restart. [….fixed-delay.delay]"""
    restart_strategy_failure_rate_max_failures_per_interval: int = 1
    """Failures in an interval that are answered by a restart. [….failure-rate.max-failures-per-interval]"""
    restart_strategy_failure_rate_failure_rate_interval: float = 60.0
    """Seconds of that interval. [….failure-rate.failure-rate-interval]"""
    restart_strategy_failure_rate_delay: float = 1.0
    """Seconds before each restart. [….failure-rate.delay]"""
    restart_strategy_exponential_delay_initial_backoff: float = 1.0
    """Seconds before the first restart. [….exponential-delay.initial-backoff]"""
    restart_strategy_exponential_delay_max_backoff: float = 60.0
    """Most seconds before a restart. [….exponential-delay.max-backoff]"""
    restart_strategy_exponential_delay_backoff_multiplier: float = 1.5
    """By which the delay grows. [….exponential-delay.backoff-multiplier]"""
    restart_strategy_exponential_delay_reset_backoff_threshold: float = 3600.0
    """Seconds without a failure after which the delay starts over. [….exponential-delay.reset-backoff-threshold]"""
    restart_strategy_exponential_delay_jitter_factor: float = 0.1
    """Share of the delay that is left to chance. [….exponential-delay.jitter-factor]"""
    restart_strategy_exponential_delay_attempts_before_reset_backoff: int = UNLIMITED
    """Restarts until the delay starts over, or ``infinite``. [….exponential-delay.attempts-before-reset-backoff]"""

    @property
    def lease(self) -> Lease:
        """How often a driver beats, and for how long it owns its job after that."""
        return Lease.lasting(self.previous_worker_recovery_timeout)

    @property
    def heartbeat_interval(self) -> float:
        """Seconds between two heartbeats."""
        return self.lease.interval


@dataclass(frozen=True)
class StorageOptions(_Options):
    """How the object store is reached. Never a secret: credentials come from boto3's own chain. Empty text: not set."""

    endpoint_url: str = ""
    """For S3 look-alikes: ``http://host:port``."""
    region: str = ""
    """AWS region of the bucket."""
    addressing_style: str = "auto"
    """``auto``, ``path`` (most look-alikes) or ``virtual``."""
    sse: str = ""
    """Server-side encryption of new objects: ``AES256`` or ``aws:kms``."""
    sse_kms_key_id: str = ""
    """Key for ``aws:kms``; the bucket's default key if empty."""
    checksum: str = "when_required"
    """botocore's ``request_checksum_calculation``: ``when_required`` or ``when_supported`` (AWS itself)."""
    ca_bundle: str = ""
    """Path of a CA bundle for https endpoints of your own."""


def _one_of(*choices: str) -> Callable[[object, str], str]:
    def read(value: object, option: str) -> str:
        text = str(value).strip()
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise _bad(option, value, " or ".join(repr(choice) for choice in choices))

    return read


def _text(value: object, option: str) -> str:
    return str(value).strip()


def _url(value: object, option: str) -> str:
    text = str(value).strip().rstrip("/")
    if "@" in text:
        # Not _bad(): it would repeat what may be a password.
        raise ConfigurationError(
            f"Option {option!r} holds a user name or a password.",
            remedy="It must be a URL such as 'http://127.0.0.1:9000'; credentials come from boto3's own chain.",
            option=option,
        )
    if not re.fullmatch(r"https?://[^/@\s]+(/[^@\s]*)?", text):
        raise _bad(option, value, "a URL such as 'http://127.0.0.1:9000'")
    return text


def _positive_duration(value: object, option: str) -> float:
    seconds = parse_duration(value, option)
    if seconds <= 0:
        raise _bad(option, value, "longer than zero")
    return seconds


def _count(value: object, option: str) -> int:
    text = str(value).strip().lower()
    if text == "infinite":
        return UNLIMITED
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > UNLIMITED:
        raise _bad(option, value, "a whole number from 0, or 'infinite'")
    return int(text)


def _number(lowest: float, highest: float) -> Callable[[object, str], float]:
    def read(value: object, option: str) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not lowest <= number <= highest:
            raise _bad(option, value, f"a number from {lowest:g} to {highest:g}")
        return number

    return read


_READERS: dict[str, Callable[[object, str], Any]] = {
    "enabled": parse_flag,
    "previous_worker_recovery_timeout": _positive_duration,
    "ownership_timeout": parse_duration,
    "write_buffer_size": parse_size,
    "write_buffer_flush_interval": parse_duration,
    "snapshot_min_pause": parse_duration,
    "retention": _positive_duration,
    "resume": _one_of("auto", "never"),
    "recovery_points": _one_of("auto", "explicit"),
    "overhead_budget": _number(0, 1e9),
    "sinks": _one_of("once", "repeat"),
    "unknown_sinks": _one_of("warn", "fail"),
    "failover_strategy": _one_of("region", "full"),
    "restart_strategy": _one_of("none", "fixed-delay", "failure-rate", "exponential-delay"),
    "restart_strategy_fixed_delay_attempts": _count,
    "restart_strategy_fixed_delay_delay": parse_duration,
    "restart_strategy_failure_rate_max_failures_per_interval": _count,
    "restart_strategy_failure_rate_failure_rate_interval": parse_duration,
    "restart_strategy_failure_rate_delay": parse_duration,
    "restart_strategy_exponential_delay_initial_backoff": parse_duration,
    "restart_strategy_exponential_delay_max_backoff": parse_duration,
    "restart_strategy_exponential_delay_backoff_multiplier": _number(1, 1000),
    "restart_strategy_exponential_delay_reset_backoff_threshold": parse_duration,
    "restart_strategy_exponential_delay_jitter_factor": _number(0, 1),
    "restart_strategy_exponential_delay_attempts_before_reset_backoff": _count,
    "endpoint_url": _url,
    "region": _text,
    "addressing_style": _one_of("auto", "path", "virtual"),
    "sse": _one_of("AES256", "aws:kms"),
    "sse_kms_key_id": _text,
    "checksum": _one_of("when_required", "when_supported"),
    "ca_bundle": _text,
}
