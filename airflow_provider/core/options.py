"""The recovery options, each declared once with its type, default and help.

The connection form, the command line, the operator's parameters, Spark's conf and the tables in the documents are
generated from these declarations, so an option has the same meaning and spelling everywhere. Durations are in seconds,
sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.lease import Lease
from airflow_provider.core.option_types import (
    COUNT,
    DURATION,
    FLAG,
    POSITIVE_DURATION,
    SIZE,
    TEXT,
    URL,
    OptionType,
    number,
    one_of,
)

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = (
    f"SPARK_RECOVERY_AWS_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
)
"""Environment variables of a driver: the event store's credentials, which are none of the job's own."""
INTEGRITY_SECRET = "SPARK_RECOVERY_INTEGRITY_SECRET"  # noqa: S105 - the name of one
"""Environment variable of drivers, executors and the command line: what seals the objects of the event store."""

_DECLARED = "option"


@dataclass(frozen=True)
class Option:
    """The declaration of an option.

    :ivar default: as people write it; empty text if it is not set
    :ivar help: what it does, in a sentence without a full stop
    :ivar common: whether it is for everyone rather than for experts: ``--help`` and the first table of options list it
    :ivar flink: the name of Flink's option; ``…`` stands for what it shares with the previous one
    """

    type: OptionType
    default: str
    help: str
    common: bool = False
    flink: str = ""


def _option(kind: OptionType, default: str, help_text: str, *, common: bool = False, flink: str = "") -> Any:
    declared = Option(kind, default, help_text, common, flink)
    return field(default=kind.read(default, "") if default else "", metadata={_DECLARED: declared})


@dataclass(frozen=True)
class _Options:
    """The base of both option groups."""

    @classmethod
    def declared(cls) -> dict[str, Option]:
        """Return the declarations by option name."""
        return {item.name: item.metadata[_DECLARED] for item in fields(cls)}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], base: Self | None = None) -> Self:
        """Return *base* (or the defaults) overridden by *values*; ``None`` and empty text change nothing.

        :param values: maps an option's name, with ``_`` or ``-``, to its value as text or as a plain value
        :raises ConfigurationError: an option is unknown or its value is invalid
        """
        known = cls.declared()
        changes: dict[str, Any] = {}
        for raw_name, value in values.items():
            name = raw_name.replace("-", "_")
            if name not in known:
                raise ConfigurationError(
                    f"Unknown recovery option {raw_name!r}.", remedy=f"Known options: {', '.join(sorted(known))}."
                )
            if value is not None and value != "":
                changes[name] = known[name].type.read(value, name)
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
    """How a job is recorded and recovered."""

    enabled: bool = _option(FLAG, "true", "Record and recover at all", flink="execution.batch.job-recovery.enabled")
    resume: str = _option(
        one_of("auto", "never"),
        "auto",
        "auto: continue with what survived; never: start afresh at every attempt",
        common=True,
    )
    recovery_points: str = _option(
        one_of("auto", "explicit"),
        "auto",
        "auto: keep what shuffles have written, beside what the script names; explicit: only checkpoint() and its like",
        common=True,
    )
    overhead_budget: float = _option(
        number(0, 1e9),
        "0.1",
        "The share of the time that recovery may take: copying map outputs per second of computing, a retry's wait for "
        "executors per second that it saves, looking for what may be deleted per second that the driver runs",
        common=True,
    )
    store_budget: int = _option(
        SIZE,
        "1 TiB",
        "Most bytes that a job may hold in the event store for auto mode to keep another shuffle; of those that it has "
        "kept, what saves least task time per byte goes first",
    )
    source_version: str = _option(
        TEXT,
        "",
        "Names the state of all that tells no version (JDBC, an RDD, what Python functions read by themselves): every "
        "attempt reuses what was made of it as long as this text is the same",
    )
    sinks: str = _option(
        one_of("once", "repeat"),
        "once",
        "once: an output that an earlier attempt has committed is not written again; repeat: it is",
        common=True,
    )
    unknown_sinks: str = _option(
        one_of("warn", "fail"),
        "warn",
        "What a retry does where rows may be there twice, or be missing, and nobody can tell: tables of other formats",
        common=True,
    )
    retention: float = _option(
        POSITIVE_DURATION,
        "7 days",
        "How long the DAG spark_recovery_gc keeps a job that is not at work ('spark-recovery gc' has --older-than)",
        common=True,
    )
    previous_worker_recovery_timeout: float = _option(
        POSITIVE_DURATION,
        "30 s",
        "How long a driver owns its job after a confirmed heartbeat, its lease. Nobody takes the job over before that "
        "and one heartbeat more (40 s) have passed in silence",
        flink="….previous-worker.recovery.timeout",
    )
    deployment: str = _option(
        TEXT,
        "",
        "Name of the Airflow deployment, whose jobs no other one touches in an event store that they share (else the "
        "host, port and path of Airflow's [api] base_url)",
    )
    ownership_timeout: float = _option(
        DURATION,
        "5 min",
        "How long a write waits for the event store when the lease has run out; then the attempt fails and has written "
        "nothing",
    )
    jvm_timeout: float = _option(
        POSITIVE_DURATION,
        "10 min",
        "How long the driver's JVM may leave a question without an answer, as in a long garbage collection; then the "
        "attempt fails. A JVM that has ended fails it at once",
    )
    write_buffer_size: int = _option(
        SIZE,
        "1 MiB",
        "Size of the event buffer that triggers a flush",
        flink="job-event.store.write-buffer.size",
    )
    write_buffer_flush_interval: float = _option(
        DURATION,
        "1 s",
        "How long an event waits at most to be flushed",
        flink="job-event.store.write-buffer.flush-interval",
    )
    snapshot_min_pause: float = _option(
        DURATION,
        "3 min",
        "Least time between two snapshots of the job's state, unless a vertex ends",
        flink="….operator-coordinator-snapshot.min-pause",
    )
    failover_strategy: str = _option(
        one_of("region", "full"),
        "region",
        "What is restarted inside the application when a Spark job fails; full: everything",
        flink="jobmanager.execution.failover-strategy",
    )
    restart_strategy: str = _option(
        one_of("none", "fixed-delay", "failure-rate", "exponential-delay"),
        "fixed-delay",
        "Whether and when something is restarted inside the application",
        flink="restart-strategy.type",
    )
    restart_strategy_fixed_delay_attempts: int = _option(
        COUNT, "1", "Restarts over the life of the job", flink="restart-strategy.fixed-delay.attempts"
    )
    restart_strategy_fixed_delay_delay: float = _option(
        DURATION, "1 s", "Time before each restart", flink="….fixed-delay.delay"
    )
    restart_strategy_failure_rate_max_failures_per_interval: int = _option(
        COUNT,
        "1",
        "Failures in an interval that are answered by a restart",
        flink="….failure-rate.max-failures-per-interval",
    )
    restart_strategy_failure_rate_failure_rate_interval: float = _option(
        DURATION, "1 min", "That interval", flink="….failure-rate.failure-rate-interval"
    )
    restart_strategy_failure_rate_delay: float = _option(
        DURATION, "1 s", "Time before each restart", flink="….failure-rate.delay"
    )
    restart_strategy_exponential_delay_initial_backoff: float = _option(
        DURATION, "1 s", "Time before the first restart", flink="….exponential-delay.initial-backoff"
    )
    restart_strategy_exponential_delay_max_backoff: float = _option(
        DURATION, "1 min", "Longest time before a restart", flink="….exponential-delay.max-backoff"
    )
    restart_strategy_exponential_delay_backoff_multiplier: float = _option(
        number(1, 1000), "1.5", "Factor by which that time grows", flink="….exponential-delay.backoff-multiplier"
    )
    restart_strategy_exponential_delay_reset_backoff_threshold: float = _option(
        DURATION,
        "1 h",
        "Time without a failure after which it starts over",
        flink="….exponential-delay.reset-backoff-threshold",
    )
    restart_strategy_exponential_delay_jitter_factor: float = _option(
        number(0, 1), "0.1", "Share of it that is left to chance", flink="….exponential-delay.jitter-factor"
    )
    restart_strategy_exponential_delay_attempts_before_reset_backoff: int = _option(
        COUNT,
        "infinite",
        "Restarts until it starts over",
        flink="….exponential-delay.attempts-before-reset-backoff",
    )

    @property
    def writes_once(self) -> bool:
        """Whether an output that an earlier attempt committed is not written again."""
        return self.enabled and self.sinks == "once"

    @property
    def lease(self) -> Lease:
        """The driver's heartbeat interval, and how long it owns its job after a beat."""
        return Lease.lasting(self.previous_worker_recovery_timeout)

    @property
    def heartbeat_interval(self) -> float:
        """Seconds between two heartbeats."""
        return self.lease.interval


@dataclass(frozen=True)
class StorageOptions(_Options):
    """How the object store is reached. Holds no secret: credentials come from boto3's chain. Empty text: not set."""

    endpoint_url: str = _option(
        URL,
        "",
        "S3 endpoint, for S3-compatible stores (else AWS_ENDPOINT_URL, the AWS connection's, or AWS)",
        common=True,
    )
    region: str = _option(TEXT, "", "AWS region of the bucket")
    addressing_style: str = _option(
        one_of("auto", "path", "virtual"), "auto", "How requests name the bucket; most S3-compatible stores need path"
    )
    sse: str = _option(one_of("AES256", "aws:kms"), "", "Server-side encryption of new objects")
    sse_kms_key_id: str = _option(TEXT, "", "Key for aws:kms; the bucket's default key if it is not set")
    checksum: str = _option(
        one_of("when_required", "when_supported"), "when_required", "when_supported: let S3 check uploads, too"
    )
    ca_bundle: str = _option(TEXT, "", "Path of a CA bundle for an https endpoint of your own")
