"""What Airflow asks of a provider: its operators, hooks and connection form."""

from __future__ import annotations

from typing import Any

from airflow_provider import __version__


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata (entry point ``apache_airflow_provider``)."""
    return {
        "package-name": "airflow-provider-spark-recovery",
        "name": "Spark Recovery",
        "description": "Spark jobs that go on from where they died: replayed events, reused partitions.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": "Spark Recovery",
                "external-doc-url": "https://pypi.org/project/airflow-provider-spark-recovery/",
                "tags": ["apache"],
            }
        ],
        "operators": [
            {
                "integration-name": "Spark Recovery",
                "python-modules": ["airflow_provider.operators.spark_recovery"],
            }
        ],
        "task-decorators": [
            {
                "name": "spark_recovery",
                "class-name": "airflow_provider.operators.decorated.spark_recovery_task",
            }
        ],
        "hooks": [
            {
                "integration-name": "Spark Recovery",
                "python-modules": ["airflow_provider.hooks.spark_recovery"],
            }
        ],
        "triggers": [
            {
                "integration-name": "Spark Recovery",
                "python-modules": ["airflow_provider.triggers.spark_recovery"],
            }
        ],
        "extra-links": [
            f"airflow_provider.links.spark_recovery.{name}"
            for name in ("RecoveryPageLink", "SparkUiLink", "EventStoreLink")
        ],
        "connection-types": [
            {
                "hook-class-name": "airflow_provider.hooks.spark_recovery.SparkRecoveryHook",
                "hook-name": "Spark Recovery",
                "connection-type": "spark_recovery",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "schema", "login", "password", "extra"],
                    "relabeling": {},
                    "placeholders": {"event_store": "s3://bucket/prefix"},
                },
                "conn-fields": _connection_fields(),
            }
        ],
    }


def _connection_fields() -> dict[str, Any]:
    def text(label: str, description: str) -> dict[str, Any]:
        return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}

    def choice(label: str, description: str, *values: str) -> dict[str, Any]:
        schema = {"type": ["string", "null"], "enum": [*values, None], "default": None}
        return {"label": label, "description": description, "schema": schema}

    return {
        "event_store": text("Event store", "Where jobs keep their state: s3://bucket/prefix or file:///shared/path"),
        "aws_conn_id": text("AWS connection", "For s3://; empty: the machines' own credentials"),
        "resume": choice("Resume", "auto (default): go on from what survived; never: start afresh", "auto", "never"),
        "previous_worker_recovery_timeout": text(
            "Previous worker recovery timeout",
            "How long a driver owns its job after a confirmed heartbeat. Default: 30 s",
        ),
        "ownership_timeout": text(
            "Ownership timeout", "How long a write waits for the event store when that is over. Default: 5 min"
        ),
        "integrity_secret": {
            "label": "Integrity secret",
            "description": "Seals everything that is stored, so that nobody without it can change what a retry reads",
            "schema": {"type": ["string", "null"], "format": "password"},
        },
        "endpoint_url": text("S3 endpoint", "For S3-compatible stores; default: AWS, or the AWS connection's"),
        "region": text("Region", "Region of the bucket; default: the AWS connection's"),
        "addressing_style": choice("Addressing style", "Default: auto", "auto", "path", "virtual"),
        "sse": choice("Server-side encryption", "Of new objects; default: the bucket's", "AES256", "aws:kms"),
        "sse_kms_key_id": text("KMS key", "For aws:kms; default: the bucket's key"),
        "checksum": choice("Request checksums", "Default: when_required", "when_required", "when_supported"),
        "ca_bundle": text("CA bundle", "Path of a CA bundle for an https endpoint of your own"),
        "write_buffer_size": text("Write buffer size", "Bytes of events that trigger a flush. Default: 1 MiB"),
        "write_buffer_flush_interval": text("Flush interval", "How long an event waits at most. Default: 1 s"),
        "snapshot_min_pause": text("Snapshot pause", "Least time between two snapshots of the job. Default: 3 min"),
        "retention": text("Retention", "How long jobs that are not at work are kept for a retry. Default: 7 days"),
        "recovery_points": choice(
            "Recovery points",
            "auto: keep what shuffles have written, too; explicit (default): only what the script names",
            "auto",
            "explicit",
        ),
        "overhead_budget": text(
            "Overhead budget", "Seconds of copying map outputs for one second of computing, in auto mode. Default: 0.1"
        ),
        "sinks": choice(
            "Sinks",
            "once (default): an output that an earlier try has committed is not written again; repeat: it is",
            "once",
            "repeat",
        ),
        "unknown_sinks": choice(
            "Unknown sinks",
            "Before a retry adds rows again to a table that cannot be asked whether they are there. Default: warn",
            "warn",
            "fail",
        ),
        "failover_strategy": choice(
            "Failover strategy", "What is restarted inside the application. Default: region", "region", "full"
        ),
        "restart_strategy": choice(
            "Restart strategy",
            "When something is restarted inside the application. Default: fixed-delay",
            "none",
            "fixed-delay",
            "failure-rate",
            "exponential-delay",
        ),
        **{
            f"restart_strategy_{name}": text(f"Restart strategy: {label}", description)
            for name, label, description in (
                ("fixed_delay_attempts", "fixed delay, attempts", "Restarts over the life of the job. Default: 1"),
                ("fixed_delay_delay", "fixed delay", "Before each restart. Default: 1 s"),
                ("failure_rate_max_failures_per_interval", "failure rate, failures per interval", "Default: 1"),
                ("failure_rate_failure_rate_interval", "failure rate, interval", "Default: 1 min"),
                ("failure_rate_delay", "failure rate, delay", "Before each restart. Default: 1 s"),
                ("exponential_delay_initial_backoff", "exponential delay, initial backoff", "Default: 1 s"),
                ("exponential_delay_max_backoff", "exponential delay, maximum backoff", "Default: 1 min"),
                ("exponential_delay_backoff_multiplier", "exponential delay, multiplier", "Default: 1.5"),
                ("exponential_delay_reset_backoff_threshold", "exponential delay, reset threshold", "Default: 1 h"),
                ("exponential_delay_jitter_factor", "exponential delay, jitter factor", "Default: 0.1"),
                (
                    "exponential_delay_attempts_before_reset_backoff",
                    "exponential delay, attempts before reset",
                    "Default: infinite",
                ),
            )
        },
        "enabled": {
            "label": "Enabled",
            "description": "Record and recover at all",
            "schema": {"type": ["boolean", "null"], "default": True},
        },
    }
