"""Check keys by rules that hold in every store, so that a job can move between stores; parse numbers in names."""

from __future__ import annotations

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.storage.object_store import ObjectStore


def check_key(key: str) -> str:
    """Return *key* if every store takes it literally.

    :raises ConfigurationError: the key is empty, begins or ends with ``/``, or has an empty, ``.`` or ``..`` segment
    """
    if "\0" in key or any(segment in {"", ".", ".."} for segment in key.split("/")):
        raise ConfigurationError(
            f"{key!r} cannot be an object's key.",
            remedy="Keys are non-empty segments joined by '/', none of them '.' or '..'.",
            key=key,
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return *prefix*, the beginning of keys (or empty text), if it stays within the root.

    :raises ConfigurationError: it begins with ``/``, or a segment is empty, ``.`` or ``..``
    """
    if prefix:
        check_key(prefix.removesuffix("/") or "/")
    return prefix


def number_of(key: str, folder: str, suffix: str) -> int | None:
    """Return the number between *folder*, with its slash, and *suffix*; ``None`` for other keys."""
    stem = key.removeprefix(folder).removesuffix(suffix)
    return int(stem) if stem.isascii() and stem.isdigit() and key == f"{folder}{stem}{suffix}" else None


def numbers_in(store: ObjectStore, folder: str, suffix: str = ".json") -> list[int]:
    """Return the numbers in the names of *folder*'s objects. One listing."""
    found = (number_of(info.key, folder, suffix) for info in store.list(folder))
    return [number for number in found if number is not None]
