"""Merge connection, operator parameters and Spark's conf into settings. Pure: reads no connection itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from airflow_provider.core.options_in_conf import known_settings, settings_of


@dataclass(frozen=True)
class RecoverySettings:
    """Where a job's state is kept, and how the job is recovered.

    :ivar event_store: ``s3://bucket/prefix`` or ``file:///path``
    :ivar aws_conn_id: Airflow's AWS connection for the store; empty for boto3's own chain
    :ivar integrity_secret: seals stored objects (see ``storage.sealing``); only the connection may hold it, because
        many people can see the other places
    """

    event_store: str
    aws_conn_id: str = ""
    options: RecoveryOptions = field(default_factory=RecoveryOptions)
    storage: StorageOptions = field(default_factory=StorageOptions)
    integrity_secret: str = field(default="", repr=False)


SECRET = "integrity_secret"  # noqa: S105 - the name of one
"""Field of the connection; its name makes Airflow mask it."""


def by_name(values: Any, what: str, remedy: str) -> dict[str, Any]:
    """Return settings by their names; no settings where there is nothing.

    :param what: names *values*, for messages, which do not repeat them: they may hold a secret
    :raises ConfigurationError: they are something else: a text that a template has made, say
    """
    if isinstance(values, Mapping) or not values:
        return dict(values or {})
    kind = "a text" if isinstance(values, str) else f"a {type(values).__name__}"
    raise ConfigurationError(f"{what} is {kind}, not settings by their names.", remedy=remedy)


def merge_settings(*layers: tuple[str, Mapping[str, Any]]) -> RecoverySettings:
    """Merge *layers*, later ones over earlier ones; ``None`` and empty text count as not set.

    :param layers: for each layer its origin, for messages, and its values
    :raises ConfigurationError: a setting is unknown or invalid, or no layer names the event store
    """
    values: dict[str, Any] = {}
    for source, layer in layers:
        for raw, value in layer.items():
            name = raw.replace("-", "_")
            if name == SECRET:
                raise ConfigurationError(
                    f"{source} has the integrity secret, where many can read it.",
                    remedy="Put it into the connection's field 'integrity_secret', and make another one.",
                )
            if name not in known_settings():
                raise ConfigurationError(
                    f"{source} has the unknown recovery option {raw!r}.",
                    remedy=f"Known options: {', '.join(sorted(known_settings()))}.",
                )
            if value is not None and value != "":
                values[name] = value
    if not values.get("event_store"):
        raise ConfigurationError(
            f"No event store is given in {', '.join(source for source, _ in layers)}.",
            remedy="Set 'event_store' of the connection to s3://bucket/prefix or file:///path.",
        )
    return RecoverySettings(
        event_store=str(values["event_store"]).strip(),
        aws_conn_id=str(values.get("aws_conn_id", "")).strip(),
        options=RecoveryOptions.from_mapping(settings_of(RecoveryOptions, values)),
        storage=StorageOptions.from_mapping(settings_of(StorageOptions, values)),
    )


KEY = "spark_recovery"
_RESUME = ("auto", "never")


def run_options(conf: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the options that a run's conf sets for all tries of all its Spark jobs.

    :raises ConfigurationError: its value of ``spark_recovery`` is invalid
    """
    if not conf or KEY not in conf:
        return {}
    said = conf[KEY]
    if not isinstance(said, Mapping) or set(said) - {"resume"} or said.get("resume", "auto") not in _RESUME:
        raise ConfigurationError(
            f"The run's conf has {said!r} under {KEY!r}.",
            remedy=f'Trigger the run with {{"{KEY}": {{"resume": "never"}}}}, "auto" or nothing at all.',
        )
    return dict(said)
