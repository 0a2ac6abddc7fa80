"""An object store in a directory, for one machine or a file system that all machines share.

Every object is written to a hidden folder of the same root, flushed to disk, and then given its name, so it is complete
or absent. ``link()`` gives the name, because it fails atomically if the name is taken, even on NFS. Without hard links,
``O_EXCL`` keeps the create-only guarantee, but a reader may see half an object. No symbolic link below the root is
followed (see ``directories``). Needs the standard library only.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import quote

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.faults import WITHIN_MULTIPART_UPLOAD, fault_point
from airflow_provider.storage.directories import Folder, copy_exclusively, in_folder, remove_empty, walk
from airflow_provider.storage.file_errors import NOTHING_THERE, file_errors
from airflow_provider.storage.keys import check_key, check_prefix
from airflow_provider.storage.object_store import ObjectInfo, ObjectStore, Readable, every

T = TypeVar("T")

TEMPORARY = ".tmp"
"""Folder below the root for what is being written; no key may lie in it."""

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_CHUNK = 8 * 1024**2


class FileObjectStore(ObjectStore):
    """Objects as files below *root*; directories are created on write and removed when empty.

    :param root: absolute path, which need not exist yet
    :raises ConfigurationError: *root* is a file
    """

    def __init__(self, root: Path) -> None:
        if os.path.exists(root) and not os.path.isdir(root):  # unlike Path's, no error where that may not be asked
            raise ConfigurationError(
                f"The event store {root} is not a directory.", remedy="Name a directory, or remove the file.", path=root
            )
        self._root = root

    @property
    def uri(self) -> str:
        """``file://`` and the path, percent-encoded."""
        return file_uri(self._root)

    def put_new(self, key: str, body: bytes) -> None:
        self._create(key, lambda file: file.write(body), _link)

    def put(self, key: str, body: bytes) -> None:
        self._create(key, lambda file: file.write(body), _replace)

    def upload(self, key: str, path: Path, through: Callable[[BinaryIO], Readable] | None = None) -> None:
        with path.open("rb") as file:
            source = through(file) if through else file

            def copy(target: BinaryIO) -> None:
                target.write(source.read(_CHUNK))
                target.flush()
                fault_point(WITHIN_MULTIPART_UPLOAD)
                shutil.copyfileobj(source, target, _CHUNK)

            self._create(key, copy, _replace)

    def share(self, key: str, path: Path) -> None:
        def link(folder: Folder, name: str) -> None:
            os.link(path, name, dst_dir_fd=folder.descriptor, follow_symlinks=False)

        with file_errors(self._root, "write", key):
            try:
                try:  # a link is complete as soon as it exists
                    self._give_name(key, lambda target: link(target.folder, target.name)).close()
                except FileExistsError:
                    with self._unfinished(key, link) as (unfinished, _):
                        self._give_name(key, lambda target: _replace(unfinished, target)).close()
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
            else:
                return
        self.upload(key, path)

    def borrow(self, key: str, path: Path) -> None:
        with file_errors(self._root, "read", key), self._folder_of(key) as folder:
            name = _name(key)
            folder.status(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(name, path, src_dir_fd=folder.descriptor, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
            else:
                if path.is_symlink():  # planted since
                    path.unlink()
                    folder.status(name)
                return
        self.download(key, path)

    def get(self, key: str) -> bytes:
        with file_errors(self._root, "read", key), self._folder_of(key) as folder, folder.open(_name(key)) as file:
            return file.read()

    def download(self, key: str, path: Path) -> None:
        with file_errors(self._root, "read", key), self._folder_of(key) as folder:
            source = folder.open(_name(key))
        with source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = check_prefix(prefix).rpartition("/")[0]
        if folder.partition("/")[0] == TEMPORARY:
            return
        parent = f"{folder}/" if folder else ""
        with (
            file_errors(self._root, "list", prefix),
            suppress(FileNotFoundError, NotADirectoryError),
            Folder(self._root, _folders(parent)) as start,
        ):
            for info in walk(start.descriptor, parent, prefix):
                if not info.key.startswith(f"{TEMPORARY}/"):
                    yield info

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with file_errors(self._root, "delete", key), suppress(*NOTHING_THERE), self._folder_of(key) as folder:
                folder.remove(_name(key))

    def remove_empty(self, folder: str) -> None:
        """Remove a folder that others have written to, and the directories in it, if they are empty."""
        with suppress(*NOTHING_THERE), Folder(self._root, _folders(self._checked(f"{folder}/-"))) as found:
            remove_empty(found.descriptor)
        self.delete([f"{folder}/-"])

    def _mode(self) -> int:
        """Return the mode of directories before the umask: closed to others, unless the root is writable for all.

        Others cannot read files in a directory that they cannot enter.
        """
        try:
            return 0o777 if self._root.stat().st_mode & 0o002 else 0o770
        except OSError:
            return 0o770

    def abort_uploads(self, prefix: str, which: Callable[[str], bool] = every) -> int:
        """Remove unfinished files under *prefix*, so that their writers fail; return how many there were."""
        pending = []
        with (
            file_errors(self._root, "list", prefix),
            suppress(FileNotFoundError, NotADirectoryError),
            Folder(self._root, (TEMPORARY,)) as start,
        ):
            found = [info.key for info in walk(start.descriptor, "", check_prefix(prefix))]
            pending = [name for name in found if which(name.rpartition(".")[0])]
        for name in pending:
            way = (TEMPORARY, *_folders(name))
            with (
                file_errors(self._root, "delete", name),
                suppress(FileNotFoundError),
                Folder(self._root, way) as folder,
            ):
                folder.remove(_name(name))
        return len(pending)

    def exists(self, key: str) -> bool:
        with file_errors(self._root, "read", key):
            try:
                with self._folder_of(key) as folder:
                    return stat.S_ISREG(folder.status(_name(key)).st_mode)
            except NOTHING_THERE:
                return False
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    return False
                raise

    def path_of(self, key: str) -> Path:
        """Return the path of the object *key* on this machine, whether or not it exists.

        :raises ConfigurationError: the key is invalid
        """
        return self._root / self._checked(key)

    @staticmethod
    def _checked(key: str) -> str:
        if check_key(key).partition("/")[0] == TEMPORARY:
            raise ConfigurationError(
                f"The key {key!r} lies in {TEMPORARY}, which holds unfinished writes.", remedy="Use another key."
            )
        return key

    def _folder_of(self, key: str) -> Folder:
        return Folder(self._root, _folders(self._checked(key)))

    def _create(self, key: str, fill: Callable[[BinaryIO], object], name: Callable[[_Place, _Place], None]) -> None:
        with file_errors(self._root, "write", key), self._unfinished(key, Folder.create) as (unfinished, file):
            with file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            with self._give_name(key, lambda target: name(unfinished, target)) as folder:
                folder.flush()

    @contextmanager
    def _unfinished(self, key: str, begin: Callable[[Folder, str], T]) -> Iterator[tuple[_Place, T]]:
        """Create a file in the hidden folder, and remove it when the block ends."""
        name = f"{_name(self._checked(key))}.{uuid.uuid4().hex}"
        folder, begun = in_folder(
            self._root, (TEMPORARY, *_folders(key)), lambda hidden: begin(hidden, name), self._mode()
        )
        with folder:
            try:
                yield _Place(folder, name), begun
            finally:
                with suppress(OSError):
                    folder.remove(name)

    def _give_name(self, key: str, give: Callable[[_Place], None]) -> Folder:
        """Call *give* to create the object; return its folder, still open."""
        return in_folder(self._root, _folders(key), lambda target: give(_Place(target, _name(key))), self._mode())[0]


@dataclass(frozen=True)
class _Place:
    """A name in an open folder."""

    folder: Folder
    name: str


def _replace(unfinished: _Place, target: _Place) -> None:
    os.replace(
        unfinished.name,
        target.name,
        src_dir_fd=unfinished.folder.descriptor,
        dst_dir_fd=target.folder.descriptor,
    )


def _link(unfinished: _Place, target: _Place) -> None:
    try:
        os.link(
            unfinished.name,
            target.name,
            src_dir_fd=unfinished.folder.descriptor,
            dst_dir_fd=target.folder.descriptor,
            follow_symlinks=False,
        )
    except FileExistsError:
        # If an NFS server's answer is lost, the repeated call fails although the first one worked.
        if unfinished.folder.status(unfinished.name).st_nlink != 2:
            raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        with unfinished.folder.open(unfinished.name) as source:
            copy_exclusively(source, target.folder, target.name)


def _folders(key: str) -> tuple[str, ...]:
    return tuple(key.split("/")[:-1])


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def file_uri(path: Path) -> str:
    """Return the URI of an absolute path, percent-encoded; :func:`storage.uris.parse_file_uri` reads it back."""
    return "file://" + quote(str(path), safe="/:+@,;=~()!*$&'", errors="surrogateescape")
