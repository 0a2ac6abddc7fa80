"""Read recovery options from Spark's configuration: ``spark.recovery.<option>``, with underscores as everywhere.

They override the operator's and the connection's options for one job. Both sides read them: the operator from the conf
that it submits, the driver from everything it was submitted with, which may include ``spark-defaults.conf``. The value
of an unknown property is never repeated, in case it is a secret; no option is one.
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
    """Return the settings in Spark's conf, without the prefix."""
    named = {str(name): value for name, value in conf.items()}
    return {name.removeprefix(CONF_PREFIX): value for name, value in named.items() if name.startswith(CONF_PREFIX)}


def with_conf(request: RunRequest, conf: Mapping[str, Any]) -> RunRequest:
    """Return *request* with its options overridden by those in Spark's conf.

    :param conf: all properties of the driver
    :raises ConfigurationError: a property with the prefix is unknown or invalid, or names another event store than the
        job was started with
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
    """Return the settings that are options of *group*."""
    return {name: settings[name] for name in group.declared() if name in settings}
