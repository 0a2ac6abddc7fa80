"""What only a store of files has to stand: other processes, permissions, odd file systems."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.core.errors import (
    AccessDenied,
    ConfigurationError,
    ObjectExists,
    ObjectNotFound,
    StoreError,
)
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.files import FileObjectStore


def _all_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_a_missing_root_is_made_by_the_first_write_and_not_before(tmp_path: Path) -> None:
    """Looking at a store creates nothing; writing creates what is missing of its path."""
    root = tmp_path / "data" / "event store"
    store = FileObjectStore(root)
    assert list(store.list("")) == []
    assert not store.exists("a")
    assert store.abort_uploads("") == 0
    store.delete(["a"])
    assert not root.parent.exists()
    store.put_new("jobs/a", b"")
    assert _all_files(root) == ["jobs", "jobs/a"]


def test_nothing_but_objects_stays_behind(files: FileObjectStore, tmp_path: Path) -> None:
    """Temporary files and emptied directories go away; the root stays."""
    files.put_new("a/b/c", b"1")
    with pytest.raises(ObjectExists):
        files.put_new("a/b/c", b"2")
    files.put("a/b/d", b"1")
    assert _all_files(tmp_path / "store") == ["a", "a/b", "a/b/c", "a/b/d"]
    files.delete(["a/b/c", "a/b/d"])
    assert _all_files(tmp_path / "store") == []


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="is not a directory") as caught:
        FileObjectStore(tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value)


def test_a_file_on_the_way_is_reported(files: FileObjectStore, tmp_path: Path) -> None:
    """An object under which another is wanted, or the other way round, is an error that names the path."""
    files.put_new("a", b"")
    files.put_new("d/x", b"")
    for key in ("a/b", "d"):
        with pytest.raises(StoreError) as caught:
            files.put_new(key, b"")
        assert not isinstance(caught.value, ObjectExists)
        assert str(tmp_path / "store" / key) in str(caught.value)
    with pytest.raises(ObjectNotFound):
        files.get("a/b")
    assert list(files.list("a/b")) == []


def test_keys_in_the_temporary_folder_are_refused(files: FileObjectStore) -> None:
    """Unfinished writes are nobody's objects, not even on request."""
    for operation in (lambda: files.put_new(".tmp/x", b""), lambda: files.get(".tmp/x")):
        with pytest.raises(ConfigurationError, match=r"\.tmp"):
            operation()
    assert list(files.list(".tmp/")) == []


def test_an_unwritable_root_is_named_with_its_user(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Access denied says where, what and who."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/") and folder != Path("/tmp"):
            folder.chmod(0o755)
    root = tmp_path / "store"
    root.mkdir()
    store = FileObjectStore(root)
    store.put_new("a", b"")
    root.chmod(0o555)
    request.getfixturevalue("nobody")
    for write in (lambda: store.put_new("b", b""), lambda: store.put("a", b""), lambda: store.delete(["a"])):
        with pytest.raises(AccessDenied) as caught:
            write()
        assert str(root) in caught.value.message
        assert f"uid {os.geteuid()}" in caught.value.remedy
        assert "name another directory" in caught.value.remedy
    with pytest.raises(AccessDenied):
        check_store(store)


def test_a_missing_root_below_an_unwritable_one_is_denied(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The first write says that the root cannot be made."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/") and folder != Path("/tmp"):
            folder.chmod(0o755)
    request.getfixturevalue("nobody")
    with pytest.raises(AccessDenied) as caught:
        check_store(FileObjectStore(tmp_path / "new" / "store"))
    assert str(tmp_path / "new" / "store") in caught.value.message


def test_a_root_in_a_folder_that_others_may_not_enter_is_denied(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Whether something is there may not even be asked: each command says so in one line, as the driver does."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o600)
    request.getfixturevalue("nobody")
    store = FileObjectStore(closed / "store")
    for use in (lambda: check_store(store), lambda: list(store.list("jobs/")), lambda: store.get("a")):
        with pytest.raises(AccessDenied, match="Permission denied") as caught:
            use()
        assert str(closed) in caught.value.message


def test_a_full_disk_is_told_as_such(tmp_path: Path) -> None:
    """A write that runs out of room names the path and says to make room; no object appears."""
    store = FileObjectStore(tmp_path / "store")
    program = (
        "import resource, signal, sys; from pathlib import Path;"
        "from airflow_provider.storage.files import FileObjectStore;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "FileObjectStore(Path(sys.argv[1])).put_new('a', bytes(2000))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")], capture_output=True, text=True, timeout=60
    )
    assert "StoreError: Cannot write" in done.stderr
    assert "Make room" in done.stderr
    assert list(store.list("")) == []
    assert store.abort_uploads("") == 0


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_without_hard_links_create_only_still_has_one_winner(
    files: FileObjectStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Where link() is refused, O_EXCL decides."""

    def no_link(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_link)
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait()
        try:
            files.put_new("claim", bytes([number]) * 1000)
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert won.count(True) == 1
    assert files.get("claim") == bytes([won.index(True)]) * 1000
    assert [info.key for info in files.list("")] == ["claim"]


def test_a_link_that_worked_although_it_was_answered_exists_is_ours(
    files: FileObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS may repeat a link() whose answer was lost: two names for our own file mean that it worked."""
    link = os.link

    def link_twice(source: str, target: str, **folders: Any) -> None:
        link(source, target, **folders)
        link(source, target, **folders)

    monkeypatch.setattr(os, "link", link_twice)
    files.put_new("claim", b"ours")
    assert files.get("claim") == b"ours"
    with pytest.raises(ObjectExists):
        files.put_new("claim", b"ours")


def test_a_write_is_on_the_disk_before_it_is_confirmed(files: FileObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is flushed before the object has its name, and the name before put_new() returns."""
    steps: list[str] = []
    fsync, link, own = os.fsync, os.link, threading.get_ident()  # other tests' threads may still beat

    def step(what: str) -> None:
        if threading.get_ident() == own:
            steps.append(what)

    def watched_fsync(descriptor: int) -> None:
        step(f"flush {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name[:5]}")
        fsync(descriptor)

    def watched_link(source: str, target: str, **folders: Any) -> None:
        step("name")
        link(source, target, **folders)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", watched_link)
    files.put_new("claims/00001", b"content")
    assert steps[1:4] == ["flush 00001", "name", "flush claim"]  # the root is new, and comes first
    assert "flush store" in steps[4:]


def test_an_upload_cut_short_by_a_kill_is_invisible_and_can_be_swept(tmp_path: Path) -> None:
    """SIGKILL in the middle of an upload leaves no object; abort_uploads removes what was written, by prefix."""
    source = tmp_path / "source"
    source.write_bytes(bytes(20 * 2**20))
    program = (
        "import sys; from pathlib import Path; from airflow_provider.storage.files import FileObjectStore;"
        "FileObjectStore(Path(sys.argv[1])).upload(sys.argv[2], Path(sys.argv[3]))"
    )
    for key in ("job1/partitions/p", "job2/partitions/p"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "store"), key, str(source)],
            env=os.environ | {"SPARK_RECOVERY_FAULT": "within-multipart-upload"},
            timeout=60,
        )
        assert done.returncode == -9
    store = FileObjectStore(tmp_path / "store")
    assert list(store.list("")) == []
    assert store.abort_uploads("job1/") == 1
    assert store.abort_uploads("job1/") == 0
    assert store.abort_uploads("") == 1
    assert _all_files(tmp_path / "store") == []


def test_an_upload_aborted_by_another_fails_its_writer(files: FileObjectStore, tmp_path: Path) -> None:
    """Whoever sweeps a fenced attempt's uploads can be sure that they do not appear afterwards."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def upload() -> None:
        files.upload("job/p", fifo)

    with ThreadPoolExecutor(1) as pool:
        uploading = pool.submit(upload)
        with fifo.open("wb") as source:
            source.write(b"first part")
            while not files.abort_uploads("job/"):
                pass
        with pytest.raises(StoreError, match="Cannot write"):
            uploading.result()
    assert list(files.list("")) == []


def test_writers_and_deleters_of_one_folder_do_not_trip_over_each_other(files: FileObjectStore) -> None:
    """A directory that another removes because it is empty is made again."""

    def churn(number: int) -> None:
        for turn in range(100):
            key = f"a/b/c/{number}-{turn}"
            files.put_new(key, b"")
            files.delete([key])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))
    assert list(files.list("")) == []


def test_a_source_that_is_missing_is_the_callers_error(files: FileObjectStore, tmp_path: Path) -> None:
    """A missing local file is no failure of the store."""
    with pytest.raises(FileNotFoundError):
        files.upload("key", tmp_path / "missing")
    assert list(files.list("")) == []


def test_links_do_not_lead_out_of_the_store(tmp_path: Path) -> None:
    """A planted symbolic link is neither listed nor followed, so that nothing outside can be read or deleted by it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("theirs")
    store = FileObjectStore(tmp_path / "root")
    store.put("jobs/a/own", b"ours")
    (tmp_path / "root" / "jobs" / "a" / "planted").symlink_to(outside)
    (tmp_path / "root" / "jobs" / "file").symlink_to(outside / "precious")
    assert [info.key for info in store.list("jobs/")] == ["jobs/a/own"]
    with pytest.raises(StoreError, match="symbolic link"):
        store.delete(["jobs/a/planted/precious"])
    store.delete(info.key for info in store.list(""))
    assert (outside / "precious").read_text() == "theirs"


@pytest.mark.parametrize(("root_mode", "others"), [(None, 0), (0o755, 0), (0o777, 0o5)])
def test_others_cannot_enter_the_store(tmp_path: Path, root_mode: int | None, others: int) -> None:
    """Rows are for this user and group alone, unless the root was made for everybody to write."""
    root = tmp_path / "root"
    if root_mode is not None:
        root.mkdir()
        root.chmod(root_mode)
    before = os.umask(0o022)
    try:
        FileObjectStore(root).put("jobs/a/own", b"ours")
    finally:
        os.umask(before)
    assert (root / "jobs").stat().st_mode & 0o7 == others
    assert (root / "jobs" / "a").stat().st_mode & 0o7 == others


@pytest.fixture
def planted(tmp_path: Path) -> tuple[FileObjectStore, Path]:
    """A store below a root that is a link itself; in it the links ``jobs/a/planted`` and ``.tmp/jobs`` lead outside."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "precious").write_text("theirs")
    (tmp_path / "disk").mkdir()
    root = tmp_path / "root"
    root.symlink_to(tmp_path / "disk")
    store = FileObjectStore(root)
    store.put("jobs/a/own", b"ours")
    assert store.get("jobs/a/own") == b"ours"
    (root / "jobs" / "a" / "planted").symlink_to(outside)
    (root / "jobs" / "a" / "file").symlink_to(outside / "precious")
    return store, outside


def _operations(store: FileObjectStore, key: str, local: Path) -> dict[str, Callable[[], object]]:
    source = local / "source"
    source.write_text("ours")
    return {
        "get": lambda: store.get(key),
        "download": lambda: store.download(key, local / "downloaded"),
        "borrow": lambda: store.borrow(key, local / "borrowed"),
        "exists": lambda: store.exists(key),
        "put": lambda: store.put(key, b"ours"),
        "put_new": lambda: store.put_new(key, b"ours"),
        "upload": lambda: store.upload(key, source),
        "share": lambda: store.share(key, source),
        "delete": lambda: store.delete([key]),
        "list": lambda: list(store.list(f"{key.rpartition('/')[0]}/")),
    }


_OPERATIONS = ["get", "download", "borrow", "exists", "put", "put_new", "upload", "share", "delete", "list"]


@pytest.mark.parametrize("operation", _OPERATIONS)
@pytest.mark.parametrize("key", ["jobs/a/planted/precious", "jobs/a/planted/deep/new"])
def test_no_operation_passes_a_link_in_the_place_of_a_directory(
    planted: tuple[FileObjectStore, Path], tmp_path: Path, key: str, operation: str
) -> None:
    """Whatever is asked below a planted link is refused, by name, and nothing outside is read, written or removed. The
    root itself may be a link.
    """
    store, outside = planted
    with pytest.raises(StoreError, match="symbolic link") as refused:
        _operations(store, key, tmp_path)[operation]()
    assert str(tmp_path / "root" / key.rpartition("/")[0]) in str(refused.value)
    assert _all_files(outside) == ["deep", "precious"]
    assert (outside / "precious").read_text() == "theirs"
    assert not (tmp_path / "downloaded").exists()
    assert not (tmp_path / "borrowed").exists()


@pytest.mark.parametrize("operation", ["get", "download", "borrow", "exists"])
def test_a_link_in_the_place_of_an_object_is_not_read(
    planted: tuple[FileObjectStore, Path], tmp_path: Path, operation: str
) -> None:
    """What it leads to is no object of the store; writing in its place replaces the link alone."""
    store, outside = planted
    with pytest.raises(StoreError, match="symbolic link"):
        _operations(store, "jobs/a/file", tmp_path)[operation]()
    assert not (tmp_path / "downloaded").exists()
    assert not os.path.lexists(tmp_path / "borrowed")
    store.put("jobs/a/file", b"ours")
    assert (store.get("jobs/a/file"), (outside / "precious").read_text()) == (b"ours", "theirs")


def test_unfinished_writes_do_not_pass_a_link_either(planted: tuple[FileObjectStore, Path], tmp_path: Path) -> None:
    """A link in the hidden folder fails the write; sweeping removes nothing behind it."""
    store, outside = planted
    (tmp_path / "root" / ".tmp").mkdir(exist_ok=True)
    (tmp_path / "root" / ".tmp" / "jobs").symlink_to(outside)
    with pytest.raises(StoreError, match="symbolic link"):
        store.put_new("jobs/new", b"ours")
    assert store.abort_uploads("jobs/") == 0
    assert _all_files(outside) == ["deep", "precious"]


def test_a_directory_that_becomes_a_link_during_writes_leads_nobody_out(tmp_path: Path) -> None:
    """However the names change meanwhile, a write lands in the store or fails."""
    outside, store = tmp_path / "outside", FileObjectStore(tmp_path / "root")
    outside.mkdir()
    folder = tmp_path / "root" / "jobs" / "a"
    store.put("jobs/a/0", b"")
    over = threading.Event()

    def swap() -> None:
        for turn in count():
            for step in (
                lambda: folder.rename(folder.with_name(f"aside{turn}")),  # noqa: B023 - called at once
                lambda: folder.symlink_to(outside),
                folder.unlink,
            ):
                with suppress(OSError):
                    step()
            if over.is_set():
                return

    refused = 0
    with ThreadPoolExecutor(1) as pool:
        swapping = pool.submit(swap)
        try:
            for turn in range(300):
                try:
                    store.put(f"jobs/a/{turn}", b"ours")
                except StoreError:
                    refused += 1
        finally:
            over.set()
        swapping.result()
    assert _all_files(outside) == []
    assert refused < 300
