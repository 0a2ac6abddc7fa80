"""Store files of coordinators: what a step saved, a pinned listing. ``state/<epoch>/<coordinator>/<id>/<name>``.

Written once, then recorded in an event with size and checksum; a file without an event does not count.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider.core.errors import CorruptObject
from airflow_provider.core.job import encode_segment
from airflow_provider.storage.object_store import ObjectStore

FOLDER = "state"


@dataclass(frozen=True)
class StateFile:
    """One stored file.

    :ivar name: path relative to the folder that it was saved from
    :ivar key: object key below the job's prefix
    """

    name: str
    key: str
    bytes: int
    sha256: str

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> StateFile:
        """Read one of the dictionaries that :meth:`StateFiles.save` returns.

        :raises CorruptObject: it is invalid, or its name leads out of the target folder
        """
        try:
            file = cls(str(state["name"]), str(state["key"]), int(state["bytes"]), str(state["sha256"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptObject(f"A stored file is not described: {error!r}.") from error
        if Path(file.name).is_absolute() or ".." in Path(file.name).parts:
            raise CorruptObject(f"The stored file {file.name!r} leads out of its folder.")
        return file


class StateFiles:
    """The files of the job with the key prefix *prefix*."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def save(self, coordinator: str, epoch: int, folder: Path) -> list[dict[str, Any]]:
        """Store all files below *folder*; return what :meth:`load` needs, as plain JSON.

        :raises StoreError: the store failed
        """
        place = f"{FOLDER}/{epoch:08d}/{encode_segment(coordinator)}/{uuid.uuid4().hex}"
        saved = []
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            key = f"{place}/{'/'.join(encode_segment(part) for part in name.split('/'))}"
            self._store.upload(f"{self._prefix}/{key}", path)
            saved.append({"name": name, "key": key, "bytes": path.stat().st_size, "sha256": _sha256(path)})
        return saved

    def load(self, saved: list[dict[str, Any]], folder: Path) -> None:
        """Write the files stored by :meth:`save` to *folder*.

        :raises CorruptObject: one of them has changed
        :raises StoreError: one of them is gone, or the store failed
        """
        for file in map(StateFile.from_json, saved):
            path = folder / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._store.download(f"{self._prefix}/{file.key}", path)
            if path.stat().st_size != file.bytes or _sha256(path) != file.sha256:
                path.unlink()
                raise CorruptObject(f"{file.key} has changed since it was stored.", key=file.key)

    def release(self, up_to: int) -> None:
        """Delete what attempt *up_to* and earlier ones wrote, including streaming checkpoints.

        :raises StoreError: the store failed
        """
        folder = f"{self._prefix}/{FOLDER}/"

        def written(key: str) -> bool:
            epoch = key.removeprefix(folder).partition("/")[0]
            return epoch.isascii() and epoch.isdigit() and int(epoch) <= up_to

        self._store.delete([info.key for info in self._store.list(folder) if written(info.key)])
        self._store.abort_uploads(folder, written)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
