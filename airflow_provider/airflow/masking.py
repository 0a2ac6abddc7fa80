"""What Airflow knows to be secret, for texts that do not pass through its logs: its masker knows it in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import redact

from airflow_provider.core.redaction import MASK
from airflow_provider.core.run_request import SecretPart


def secret_parts(arguments: Sequence[str]) -> tuple[SecretPart, ...]:
    """Return where in *arguments* Airflow's masker finds secrets: values of connections and Variables, say."""
    return tuple(
        SecretPart(number, start, end)
        for number, argument in enumerate(arguments)
        for start, end in _spans(argument, str(redact(argument)))
    )


def masked(value: Any) -> Any:
    """Return a plain JSON value whose texts are masked; keys stay as they are, also where they sound secret."""
    if isinstance(value, str):
        return str(redact(value))
    if isinstance(value, Mapping):
        return {key: masked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner) for inner in value]
    return value


def _spans(text: str, clean: str) -> Iterator[tuple[int, int]]:
    """Yield from where to where *text* was masked; all of it where that cannot be told."""
    if clean == text:
        return
    found = re.fullmatch("(.+?)".join(map(re.escape, clean.split(MASK))), text, re.DOTALL)
    if found is None or not found.groups():
        yield 0, len(text)
        return
    for group in range(1, len(found.groups()) + 1):
        yield found.span(group)
