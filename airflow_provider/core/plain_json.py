"""Turn results of user functions into JSON for events."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider.core.errors import ConfigurationError

MOST_BYTES = 1024**2
"""Of a result's JSON; it travels in an event."""


def json_of(value: Any, what: str, *, purpose: str, not_plain: str, too_large: str) -> str:
    """Return *value* as JSON.

    :param what: a name for the result, for messages
    :param purpose: what the result is needed for, such as "be kept"
    :param not_plain: remedy if the value is not plain JSON
    :param too_large: remedy if it exceeds :data:`MOST_BYTES`
    :raises ConfigurationError: it is not plain JSON, or too large
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
