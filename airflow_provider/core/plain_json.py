"""Results of user functions that are kept as JSON, in events."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider.core.errors import ConfigurationError

MOST_BYTES = 1024**2
"""Of a result's JSON; it travels in an event."""


def json_of(value: Any, what: str, *, purpose: str, not_plain: str, too_large: str) -> str:
    """Return *value* as JSON.

    :param what: whose result it is, for messages
    :param purpose: what it is needed for: "be kept", for example
    :param not_plain: remedy for a value that is no plain JSON
    :param too_large: remedy for one of more than :data:`MOST_BYTES`
    :raises ConfigurationError: it is no plain JSON, or too large
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{what} returned a {type(value).__name__}, which cannot {purpose}: {error}.", remedy=not_plain
        ) from error
    if len(text) > MOST_BYTES:
        raise ConfigurationError(
            f"{what} returned {len(text):,} bytes of JSON, more than {MOST_BYTES:,}.", remedy=too_large
        )
    return text
