"""What a key may look like, the same for every store, so that a job can move from one to another."""

from __future__ import annotations

from airflow_provider.core.errors import ConfigurationError


def check_key(key: str) -> str:
    """Return *key* if every store takes it literally.

    :raises ConfigurationError: it is empty, begins or ends with ``/``, or has an empty, ``.`` or ``..`` segment
    """
    if "\0" in key or any(segment in {"", ".", ".."} for segment in key.split("/")):
        raise ConfigurationError(
            f"{key!r} cannot be an object's key.",
            remedy="Keys are non-empty segments joined by '/', none of them '.' or '..'.",
            key=key,
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return *prefix*, the beginning of keys (or empty text), if it leads to nothing outside the root.

    :raises ConfigurationError: it begins with ``/`` or a segment is empty, ``.`` or ``..``
    """
    if prefix:
        check_key(prefix.removesuffix("/") or "/")
    return prefix
