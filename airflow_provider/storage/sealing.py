"""Seal every object: a keyed MAC at its end binds the content to its key in the store, and so to its job.

Without the secret, nobody can change an object or replace it by another one, not even by one of another job or
partition. But they can delete objects, and restore an older version of the same object.

The MAC is HMAC-SHA256 over the object's key and the SHA-256 of its content, so that a file is sealed while it is sent.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from airflow_provider.core.errors import ConfigurationError, CorruptObject
from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.storage.object_store import ObjectInfo, ObjectStore, Readable, every

if TYPE_CHECKING:
    from hashlib import _Hash

_MARK = b"\nspark-recovery-hmac-sha256 "
SEAL_SIZE = len(_MARK) + 64 + 1
"""Bytes that a seal adds to an object."""
_DOMAIN = b"spark-recovery seal 1\0"
_SHORTEST = 32
"""Characters of a secret."""
_CHUNK = 1024**2

NOT_SEALED = "not sealed with this integrity secret: written without it or with another one, or changed since"
"""What is known of an object whose seal is missing or wrong."""


class Seal:
    """Makes and checks seals.

    :param secrets: the first one makes seals, all of them verify
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = secrets

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the seal for one secret or several, separated by commas; ``None`` for empty text.

        :raises ConfigurationError: a secret is too short; the message repeats none
        """
        secrets = [part.strip() for part in text.split(",") if part.strip()]
        if any(len(secret) < _SHORTEST for secret in secrets):
            raise ConfigurationError(
                f"The integrity secret has less than {_SHORTEST} characters.",
                remedy='Make one: python -c "import secrets; print(secrets.token_hex(32))".',
            )
        return cls([secret.encode() for secret in secrets]) if secrets else None

    def tail(self, key: str, digest: bytes) -> bytes:
        """Return the seal to append to the content of the object *key*. :param digest: SHA-256 of the content"""
        return _tail(self._secrets[0], key, digest)

    def holds(self, key: str, digest: bytes, tail: bytes) -> bool:
        """Whether *tail* is a valid seal for this content of the object *key*."""
        return any(hmac.compare_digest(_tail(secret, key, digest), tail) for secret in self._secrets)


def _tail(secret: bytes, key: str, digest: bytes) -> bytes:
    sealed = _DOMAIN + key.encode(errors="surrogateescape") + b"\0" + digest
    return _MARK + hmac.new(secret, sealed, hashlib.sha256).hexdigest().encode() + b"\n"


def refuse_sealed(body: bytes, key: str) -> bytes:
    """Return *body*, which was read without a secret, if it is not sealed.

    :raises ConfigurationError: it is sealed
    """
    if not body[-SEAL_SIZE:].startswith(_MARK):
        return body
    raise ConfigurationError(
        f"{key} is sealed with an integrity secret, and this process has none.",
        remedy=f"Set 'integrity_secret' of the spark_recovery connection; for the command line, and for drivers and "
        f"executors on other machines, the environment variable {INTEGRITY_SECRET}.",
        key=key,
    )


class SealedStore(ObjectStore):
    """An object store that seals every object. Sizes are those of the content.

    Reading raises ``CorruptObject`` for an object with a missing or wrong seal. Checking that an object *exists* needs
    no seal. Shared and borrowed objects are copied: a person who can write to the store must not reach a file that
    Spark reads.

    :param plain: the store that holds the sealed objects
    """

    def __init__(self, plain: ObjectStore, seal: Seal) -> None:
        self.plain = plain
        self._seal = seal

    @property
    def uri(self) -> str:
        """The URI of the plain store."""
        return self.plain.uri

    def put_new(self, key: str, body: bytes) -> None:
        self.plain.put_new(key, self._sealed(key, body))

    def put(self, key: str, body: bytes) -> None:
        self.plain.put(key, self._sealed(key, body))

    def upload(self, key: str, path: Path, through: Callable[[BinaryIO], Readable] | None = None) -> None:
        self.plain.upload(key, path, lambda file: _Sealing(through(file) if through else file, self._seal, key))

    def get(self, key: str) -> bytes:
        body = self.plain.get(key)
        content = body[:-SEAL_SIZE]
        if not self._seal.holds(key, hashlib.sha256(content).digest(), body[-SEAL_SIZE:]):
            raise self._not_sealed(key, body)
        return content

    def download(self, key: str, path: Path) -> None:
        self.plain.download(key, path)
        if not self.is_sealed(key, path):
            path.unlink()
            raise self._not_sealed(key)
        os.truncate(path, path.stat().st_size - SEAL_SIZE)

    def is_sealed(self, key: str, path: Path) -> bool:
        """Whether a file contains the object *key* as stored, with its seal."""
        left, digest = path.stat().st_size - SEAL_SIZE, hashlib.sha256()
        with path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
            return self._seal.holds(key, digest.digest(), file.read())

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for info in self.plain.list(prefix):
            yield ObjectInfo(info.key, max(0, info.size - SEAL_SIZE), info.modified_at)

    def delete(self, keys: Iterable[str]) -> None:
        self.plain.delete(keys)

    def abort_uploads(self, prefix: str, which: Callable[[str], bool] = every) -> int:
        return self.plain.abort_uploads(prefix, which)

    def exists(self, key: str) -> bool:
        return self.plain.exists(key)

    def _sealed(self, key: str, body: bytes) -> bytes:
        return body + self._seal.tail(key, hashlib.sha256(body).digest())

    def _not_sealed(self, key: str, body: bytes = b"") -> CorruptObject:
        return CorruptObject(
            f"{self.uri}/{key} is {NOT_SEALED}.",
            remedy="It is not used.",
            key=key,
            content=hashlib.sha256(body).hexdigest(),
        )


class _Sealing:
    """A stream of a file and its seal, in one pass: it digests what is read."""

    def __init__(self, file: Readable, seal: Seal, key: str) -> None:
        self._file = file
        self._seal = seal
        self._key = key
        self._digest: _Hash | None = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        """Return the next *size* bytes; the last ones include the seal, so that no part of an upload is too small."""
        data = self._file.read(size)
        if self._digest is None:
            return data
        self._digest.update(data)
        if 0 <= size == len(data):
            return data
        digest, self._digest = self._digest.digest(), None
        return data + self._seal.tail(self._key, digest)
