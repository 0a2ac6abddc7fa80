"""What Airflow asks of a provider: its operators, hooks and connection form."""

from __future__ import annotations

from typing import Any

from airflow_provider import __version__
from airflow_provider.core.option_types import FLAG
from airflow_provider.core.options import Option, RecoveryOptions, StorageOptions


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
                "python-modules": ["airflow_provider.hooks.recovery_store", "airflow_provider.hooks.spark_recovery"],
            }
        ],
        "triggers": [
            {
                "integration-name": "Spark Recovery",
                "python-modules": ["airflow_provider.triggers.job_trigger"],
            }
        ],
        "extra-links": [
            f"airflow_provider.links.recovery_links.{name}"
            for name in ("RecoveryPageLink", "SparkUiLink", "EventStoreLink")
        ],
        "connection-types": [
            {
                "hook-class-name": "airflow_provider.hooks.recovery_store.RecoveryStoreHook",
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
    text, secret = {"type": ["string", "null"]}, {"type": ["string", "null"], "format": "password"}
    own = {
        "event_store": ("Event store", "Where jobs keep their state: s3://bucket/prefix or file:///shared/path", text),
        "aws_conn_id": ("AWS connection", "For s3://; if it is empty: the machines' own credentials", text),
        "integrity_secret": (
            "Integrity secret",
            "Seals everything that is stored, so that nobody without it can change what a retry reads",
            secret,
        ),
    }
    shown = {
        name: {"label": label, "description": description, "schema": schema}
        for name, (label, description, schema) in own.items()
    }
    declared = {**RecoveryOptions.declared(), **StorageOptions.declared()}
    common_first = sorted(declared.items(), key=lambda item: not item[1].common)
    return shown | {name: _form_field(name, option) for name, option in common_first}


def _form_field(name: str, option: Option) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": ["string", "null"]}
    if option.type is FLAG:
        schema = {"type": ["boolean", "null"], "default": option.default == "true"}
    elif option.type.choices:
        schema |= {"enum": [*option.type.choices, None], "default": None}
    default = f". Default: {option.default}" if option.default else ""
    return {"label": _label(name), "description": f"{option.help}{default}", "schema": schema}


def _label(name: str) -> str:
    words = name.replace("_", " ").capitalize().split()
    return " ".join(_WRITTEN.get(word.lower(), word) for word in words)


_WRITTEN = {"url": "URL", "ca": "CA", "sse": "SSE", "kms": "KMS", "id": "ID"}
