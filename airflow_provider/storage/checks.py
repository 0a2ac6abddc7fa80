"""Check before a job starts whether a store can do what recovery needs, with one clear error if it cannot."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass

from airflow_provider.core.errors import ObjectExists, ObjectNotFound, RecoveryError, StoreError
from airflow_provider.storage.object_store import ObjectStore

CHECK_FOLDER = ".check"
"""First segment of the keys that a check writes and deletes again."""


@dataclass(frozen=True)
class CheckedStep:
    """One operation that recovery needs of a store.

    :ivar problem: why it does not work, with its remedy; ``None`` if it does
    """

    name: str
    problem: RecoveryError | None = None


def check_store(store: ObjectStore) -> None:
    """Create, refuse to create twice, read, list and delete one small object below the root of *store*.

    Costs about seven requests. Concurrent checks do not interfere: each has its own folder.

    :raises StoreError: the first thing that does not work, with its remedy
    """
    with contextlib.closing(check_steps(store)) as steps:
        for step in steps:
            if step.problem is not None:
                raise step.problem


def check_steps(store: ObjectStore) -> Generator[CheckedStep, None, None]:
    """Do what :func:`check_store` does, step by step; a failed step does not stop the others.

    If creating fails, it is the only step, because the others need the object.
    """
    folder = f"{CHECK_FOLDER}/{uuid.uuid4().hex}"
    key = f"{folder}/object"
    body, other = f"first {folder}".encode(), f"second {folder}".encode()
    created = _tried("creating", lambda: store.put_new(key, body))
    if created.problem is not None:
        yield created
        return
    remains = True
    try:
        yield created
        yield _tried("create-only", lambda: _check_create_only(store, key, other))
        yield (reading := _tried("reading", lambda: _check_reading(store, key, (body, other))))
        yield _tried("listing", lambda: _check_listing(store, folder, key))
        remains = False
        yield _tried("deleting", lambda: _check_deleting(store, key, readable=reading.problem is None))
    finally:
        if remains:
            _delete_quietly(store, key)


def _tried(name: str, action: Callable[[], None]) -> CheckedStep:
    try:
        action()
    except RecoveryError as problem:
        return CheckedStep(name, problem)
    return CheckedStep(name)


def _check_create_only(store: ObjectStore, key: str, other: bytes) -> None:
    try:
        store.put_new(key, other)
    except ObjectExists:
        return
    raise ignores_create_only(store, key)


def ignores_create_only(store: ObjectStore, key: str) -> StoreError:
    """Return the error for a store that has created an object twice."""
    return StoreError(
        f"{store.uri} replaced an object although it was told to create it only if there is none.",
        remedy="Recovery needs conditional writes (PutObject with If-None-Match: *) to keep two drivers apart: "
        "use AWS S3, a newer version of this store, or a file:// event store.",
        uri=store.uri,
        key=key,
    )


def _check_reading(store: ObjectStore, key: str, written: tuple[bytes, ...]) -> None:
    if store.get(key) not in written:
        raise StoreError(
            f"{store.uri} returned other bytes than were written to {key}.",
            remedy="Use a store that reads back what was written; recovery cannot trust this one.",
            uri=store.uri,
            key=key,
        )


def _check_listing(store: ObjectStore, folder: str, key: str) -> None:
    if [info.key for info in store.list(f"{folder}/")] != [key]:
        raise StoreError(
            f"{store.uri} does not list the object {key} that it has just stored.",
            remedy="Recovery needs a listing that shows every finished write at once (as AWS S3's does).",
            uri=store.uri,
            key=key,
        )


def _check_deleting(store: ObjectStore, key: str, *, readable: bool) -> None:
    store.delete([key])
    if not readable:
        return  # a failed read afterwards would prove nothing
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


def _delete_quietly(store: ObjectStore, key: str) -> None:
    """Delete an object; a failing clean-up must never hide the failure that made it necessary."""
    try:
        store.delete([key])
    except StoreError:
        return
