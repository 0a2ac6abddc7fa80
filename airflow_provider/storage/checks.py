"""Find out, before a job starts, whether a store can do what recovery needs, with one clear error if it cannot."""

from __future__ import annotations

import uuid

from airflow_provider.recovery.errors import ObjectExists, ObjectNotFound, StoreError
from airflow_provider.storage.object_store import ObjectStore

CHECK_FOLDER = ".check"
"""First segment of the keys that a check writes and deletes again."""


def check_store(store: ObjectStore) -> None:
    """Create, refuse to create twice, read, list and delete one small object below the root of *store*.

    Costs about seven requests. Two checks at once do not meet: every one has a folder of its own.

    :raises StoreError: the first thing that does not work, with its remedy
    """
    folder = f"{CHECK_FOLDER}/{uuid.uuid4().hex}"
    key = f"{folder}/object"
    body, other = f"first {folder}".encode(), f"second {folder}".encode()
    store.put_new(key, body)
    try:
        _check_create_only(store, key, other)
        if store.get(key) != body:
            raise StoreError(
                f"{store.uri} returned other bytes than were written to {key}.",
                remedy="Use a store that reads back what was written; recovery cannot trust this one.",
                uri=store.uri,
                key=key,
            )
        if [info.key for info in store.list(f"{folder}/")] != [key]:
            raise StoreError(
                f"{store.uri} does not list the object {key} that it has just stored.",
                remedy="Recovery needs a listing that shows every finished write at once (as AWS S3's does).",
                uri=store.uri,
                key=key,
            )
    except StoreError:
        _delete_quietly(store, key)
        raise
    store.delete([key])
    try:
        store.get(key)
    except ObjectNotFound:
        return
    raise StoreError(
        f"{store.uri} still returns {key} after it was deleted.",
        remedy="Allow s3:DeleteObject and use a store that deletes at once.",
        uri=store.uri,
        key=key,
    )


def _check_create_only(store: ObjectStore, key: str, other: bytes) -> None:
    try:
        store.put_new(key, other)
    except ObjectExists:
        return
    raise StoreError(
        f"{store.uri} replaced an object although it was told to create it only if there is none.",
        remedy="Recovery needs conditional writes (PutObject with If-None-Match: *) to keep two drivers apart: "
        "use AWS S3, a newer version of this store, or a file:// event store.",
        uri=store.uri,
        key=key,
    )


def _delete_quietly(store: ObjectStore, key: str) -> None:
    """The clean-up must never hide the failure that made it necessary."""
    try:
        store.delete([key])
    except StoreError:
        return
