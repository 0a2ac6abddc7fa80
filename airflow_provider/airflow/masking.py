"""Mask Airflow's secrets in texts that do not pass through its logs, with the masker of this process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import redact

from airflow_provider.core.redaction import MASK
from airflow_provider.core.run_request import SecretPart


def secret_parts(arguments: Sequence[str]) -> tuple[SecretPart, ...]:
    """Return where Airflow's masker finds secrets in *arguments*, such as values of connections and Variables."""
    return tuple(
        SecretPart(number, start, end)
        for number, argument in enumerate(arguments)
        for start, end in _spans(argument, str(redact(argument)))
    )


def masked(value: Any) -> Any:
    """Return a plain JSON value with its texts masked. Keys stay as they are, even if they look secret."""
    if isinstance(value, str):
        return str(redact(value))
    if isinstance(value, Mapping):
        return {key: masked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner) for inner in value]
    return value


def _spans(text: str, clean: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of *text* that were masked; the whole text if the spans cannot be determined."""
    if clean == text:
        return
    found = re.fullmatch("(.+?)".join(map(re.escape, clean.split(MASK))), text, re.DOTALL)
    if found is None or not found.groups() or any(redact(part) != MASK for part in found.groups()):
        yield 0, len(text)
        return
    for group in range(1, len(found.groups()) + 1):
        yield found.span(group)
