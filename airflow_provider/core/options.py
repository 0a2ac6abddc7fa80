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

    enabled: bool = _option(FLAG, "true", "Record and recover the job", flink="execution.batch.job-recovery.enabled")
    resume: str = _option(
        one_of("auto", "never"),
        "auto",
        "auto: a retry continues with what survived; never: every attempt starts from scratch",
        common=True,
    )
    recovery_points: str = _option(
        one_of("auto", "explicit"),
        "auto",
        "auto: keep shuffles, too; explicit: keep only what the script names, with checkpoint() and the like",
        common=True,
    )
    overhead_budget: float = _option(
        number(0, 1e9),
        "0.1",
        "Share of time that recovery may spend: on copying map outputs, relative to computing them; on a retry's wait "
        "for executors, relative to the time saved; on finding what may be deleted, relative to the driver's run time",
        common=True,
    )
    store_budget: int = _option(
        SIZE,
        "1 TiB",
        "Size up to which auto mode fills a job's part of the event store; beyond it, the shuffles that save the least "
        "task time per byte are dropped first",
    )
    source_version: str = _option(
        TEXT,
        "",
        "Version of all sources that have none of their own (JDBC, RDDs, what Python functions read): results made "
        "from them are reused as long as this text stays the same",
    )
    sinks: str = _option(
        one_of("once", "repeat"),
        "once",
        "once: a retry skips outputs that an earlier attempt has committed; repeat: every attempt writes them",
        common=True,
    )
    unknown_sinks: str = _option(
        one_of("warn", "fail"),
        "warn",
        "What a retry does if it cannot tell whether rows are duplicated or missing, as in tables of other formats",
        common=True,
    )
    retention: float = _option(
        POSITIVE_DURATION,
        "7 days",
        "How long the DAG spark_recovery_gc keeps an inactive job ('spark-recovery gc' has --older-than for this)",
        common=True,
    )
    previous_worker_recovery_timeout: float = _option(
        POSITIVE_DURATION,
        "30 s",
        "The lease: how long a driver owns its job after a confirmed heartbeat. Another attempt takes over only after "
        "that time plus one heartbeat (40 s) without a sign of life",
        flink="….previous-worker.recovery.timeout",
    )
    deployment: str = _option(
        TEXT,
        "",
        "Name of this Airflow deployment: deployments that share an event store do not touch each other's jobs (else "
        "the host, port and path of Airflow's [api] base_url)",
    )
    ownership_timeout: float = _option(
        DURATION,
        "5 min",
        "How long a write waits for the event store once the lease has expired; then the attempt fails, and nothing "
        "was written",
    )
    jvm_timeout: float = _option(
        POSITIVE_DURATION,
        "10 min",
        "How long the driver's JVM may take to answer, for example in a long garbage collection, before the attempt "
        "fails. If the JVM has exited, it fails at once",
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
        "Longest time that an event waits in the buffer",
        flink="job-event.store.write-buffer.flush-interval",
    )
    snapshot_min_pause: float = _option(
        DURATION,
        "3 min",
        "Minimum time between two snapshots of the job's state, unless a vertex ends",
        flink="….operator-coordinator-snapshot.min-pause",
    )
    failover_strategy: str = _option(
        one_of("region", "full"),
        "region",
        "What restarts inside the application when a Spark job fails: what failed and what it needs, or everything",
        flink="jobmanager.execution.failover-strategy",
    )
    restart_strategy: str = _option(
        one_of("none", "fixed-delay", "failure-rate", "exponential-delay"),
        "fixed-delay",
        "Whether, and after which delay, failed work restarts inside the application",
        flink="restart-strategy.type",
    )
    restart_strategy_fixed_delay_attempts: int = _option(
        COUNT, "1", "Maximum number of restarts over the life of the job", flink="restart-strategy.fixed-delay.attempts"
    )
    restart_strategy_fixed_delay_delay: float = _option(
        DURATION, "1 s", "Delay before each restart", flink="….fixed-delay.delay"
    )
    restart_strategy_failure_rate_max_failures_per_interval: int = _option(
        COUNT,
        "1",
        "Maximum number of failures per interval before the attempt fails",
        flink="….failure-rate.max-failures-per-interval",
    )
    restart_strategy_failure_rate_failure_rate_interval: float = _option(
        DURATION, "1 min", "Length of that interval", flink="….failure-rate.failure-rate-interval"
    )
    restart_strategy_failure_rate_delay: float = _option(
        DURATION, "1 s", "Delay before each restart", flink="….failure-rate.delay"
    )
    restart_strategy_exponential_delay_initial_backoff: float = _option(
        DURATION, "1 s", "Delay before the first restart", flink="….exponential-delay.initial-backoff"
    )
    restart_strategy_exponential_delay_max_backoff: float = _option(
        DURATION, "1 min", "Longest delay before a restart", flink="….exponential-delay.max-backoff"
    )
    restart_strategy_exponential_delay_backoff_multiplier: float = _option(
        number(1, 1000), "1.5", "Factor by which the delay grows", flink="….exponential-delay.backoff-multiplier"
    )
    restart_strategy_exponential_delay_reset_backoff_threshold: float = _option(
        DURATION,
        "1 h",
        "Time without a failure after which the delay is reset",
        flink="….exponential-delay.reset-backoff-threshold",
    )
    restart_strategy_exponential_delay_jitter_factor: float = _option(
        number(0, 1), "0.1", "Share of the delay that is random", flink="….exponential-delay.jitter-factor"
    )
    restart_strategy_exponential_delay_attempts_before_reset_backoff: int = _option(
        COUNT,
        "infinite",
        "Maximum number of restarts between two resets before the attempt fails",
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
    sse_kms_key_id: str = _option(TEXT, "", "KMS key for aws:kms (else the bucket's default key)")
    checksum: str = _option(
        one_of("when_required", "when_supported"), "when_required", "when_supported: S3 verifies uploads, too"
    )
    ca_bundle: str = _option(TEXT, "", "Path of a CA bundle for an https endpoint with your own certificate")
