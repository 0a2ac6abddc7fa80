"""Options among Spark's configuration properties: ``spark.recovery.<option>``, with underscores as everywhere.

They are the last word on one job, over the operator's and the connection's. Both sides read them: the operator those it
submits, the driver all that it was submitted with, to which ``spark-defaults.conf`` may have added. What an unknown
property holds is never repeated, in case somebody wrote a secret there; no option is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from airflow_provider.core.run_request import RunRequest

CONF_PREFIX = "spark.recovery."

LOCATION = ("event_store", "aws_conn_id")
"""Settings that say where the event store is, and are no options of a driver."""


def known_settings() -> set[str]:
    """Return the names of all settings."""
    return {*LOCATION, *RecoveryOptions.declared(), *StorageOptions.declared()}


def conf_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among Spark's conf properties, without the prefix."""
    named = {str(name): value for name, value in conf.items()}
    return {name.removeprefix(CONF_PREFIX): value for name, value in named.items() if name.startswith(CONF_PREFIX)}


def with_conf(request: RunRequest, conf: Mapping[str, Any]) -> RunRequest:
    """Return *request* with the options that Spark's conf gives laid over its own.

    :param conf: all properties that the driver was submitted with
    :raises ConfigurationError: a property with the prefix is unknown, its value cannot be read, or it names another
        event store than the one that the job was started for
    """
    given = {name.replace("-", "_"): value for name, value in conf_settings(conf).items() if value not in (None, "")}
    if unknown := sorted(given.keys() - known_settings()):
        raise ConfigurationError(
            f"Spark's conf has the unknown property {CONF_PREFIX}{unknown[0]}.",
            remedy=f"Known options: {', '.join(sorted(known_settings()))}.",
        )
    elsewhere = str(given.get("event_store", request.event_store)).strip()
    if elsewhere.rstrip("/") != request.event_store.rstrip("/"):
        raise ConfigurationError(
            f"Spark's conf has another {CONF_PREFIX}event_store than {request.event_store}, where the job was started.",
            remedy="Name the event store in one place: the connection, the operator, or the conf that it submits.",
        )
    return replace(
        request,
        options=RecoveryOptions.from_mapping(settings_of(RecoveryOptions, given), base=request.options),
        storage=StorageOptions.from_mapping(settings_of(StorageOptions, given), base=request.storage),
    )


def settings_of(group: type[RecoveryOptions | StorageOptions], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are options of a group."""
    return {name: settings[name] for name in group.declared() if name in settings}
