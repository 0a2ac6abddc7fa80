"""Keep secrets out of records: errors and reasons may quote a script's arguments. Pure.

Names decide what is a secret, as in Airflow's and Spark's own redaction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider.core.committed_output import DOUBT
from airflow_provider.core.events import CoordinatorSnapshot, JobEvent
from airflow_provider.core.unfinished_write import SINK, UNKNOWN_SINK

MASK = "***"
_SINKS = (SINK, UNKNOWN_SINK)
_NAMES = r"secret|passw|pwd|token|credential|access[._-]?key|api[._-]?key|private[._-]?key|auth[._-]?key"
_NAMED = re.compile(_NAMES, re.IGNORECASE)
_NO_SECRET = re.compile(r"[\w-]*_(?:FILE|PATH|DIR|URI|URL)$", re.IGNORECASE)
"""Names of places: what they lead to is secret, not they themselves."""
_DIRECTORIES = frozenset({"PWD", "OLDPWD"})
"""Every shell's working directory, and the one before: no passwords."""
_PLAIN = frozenset({"true", "false", "none", "null"})
SHORTEST = 5
"""Characters; Airflow's masker leaves shorter values alone, too, because they are in any text."""
_NO_SECRET_PROPERTY = re.compile(r".*(?:file|path|dir|uri|url|provider|class|enabled|interval)s?$", re.IGNORECASE)
_TEXTS = ("error", "reason", "refused", "because")
"""Fields of events that hold what somebody else has said."""
_TEXTS_OF_SINKS = ("title", DOUBT)
"""What is remembered of a sink for people."""
_IN_URL = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)|(?:(?<=http://)|(?<=https://))[^/\s:@]+(?=@)")
_ASSIGNED = re.compile(rf"((?:{_NAMES})[\w.-]*[\"']?\s?=\s?)(\"[^\"]*\"|'[^']*'|[^\s\"'&;,)]+)", re.IGNORECASE)
_QUOTED = re.compile(rf"((?:{_NAMES})[\w.-]*\\?[\"']\s?:\s?)(\\?\"[^\"]*\"|'[^']*'|[^\s\"',;)}}\]]+)", re.IGNORECASE)
"""As dictionaries and JSON are printed."""


def names_a_secret(name: str) -> bool:
    """Whether a setting or variable with this name is secret."""
    return _NAMED.search(name) is not None


def secrets_of(environment: Mapping[str, str], arguments: Sequence[str]) -> frozenset[str]:
    """Return the secrets in environment variables and in a script's arguments.

    :param arguments: ``--password x`` and ``--password=x`` contain a secret
    """
    named = [*environment.items(), *_named(arguments)]
    return frozenset(value for name, value in named if names_a_secret(name) and _is_secret(name, value))


def secrets_in_conf(conf: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets in Spark's properties: everything that ``spark.redaction.regex`` names, except properties that
    say where a secret is stored or who provides it.
    """
    named = ((name, value) for name, value in conf.items() if not _NO_SECRET_PROPERTY.match(name))
    return frozenset(value for name, value in named if names_a_secret(name) and _is_secret(name, value))


def redacted(text: str, secrets: Collection[str]) -> str:
    """Return a text without secrets, without user and password in URLs, and without values assigned to a ``password``,
    ``token`` and the like.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _QUOTED.sub(rf"\1{MASK}", _ASSIGNED.sub(rf"\1{MASK}", _IN_URL.sub(MASK, text)))


def redacted_event(event: JobEvent, secrets: Collection[str]) -> JobEvent:
    """Return an event with all texts :func:`redacted`."""
    told = {name: getattr(event, name) for name in _TEXTS if hasattr(event, name)}
    if isinstance(event, CoordinatorSnapshot) and event.coordinator.startswith(_SINKS):
        told["state"] = event.state
    changed: dict[str, Any] = {name: clean for name, text in told.items() if (clean := _clean(text, secrets)) != text}
    return replace(event, **changed) if changed else event


def _clean(told: Any, secrets: Collection[str]) -> Any:
    if isinstance(told, tuple):
        return tuple(redacted(text, secrets) for text in told)
    if isinstance(told, dict):
        texts = {name: told[name] for name in _TEXTS_OF_SINKS if isinstance(told.get(name), str)}
        return {**told, **{name: redacted(text, secrets) for name, text in texts.items()}}
    return redacted(told, secrets)


def _named(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.startswith("-") and equals:
            yield name, value
        elif name.startswith("-") and position + 1 < len(arguments) and not arguments[position + 1].startswith("-"):
            yield name, arguments[position + 1]


def _is_secret(name: str, value: str) -> bool:
    named = name not in _DIRECTORIES and not _NO_SECRET.match(name)
    return named and len(value) >= SHORTEST and value.lower() not in _PLAIN
