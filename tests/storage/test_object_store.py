"""The contract of every object store: files, moto and Ceph's gateway answer alike."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_provider.core.errors import ConfigurationError, ObjectExists, ObjectNotFound
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.object_store import ObjectStore

ODD_KEYS = [
    "plain",
    "with space/and more",
    "run=2026-01-01T00:00:00+00:00/x",
    "percent%20sign/100%",
    "unicode/äöü/日本語/🚀",
    "quotes/'single'\"double\"",
    "punctuation/~!@$&*()[]{};,<>|^`",
    "question?/hash#",
    "back\\slash",
    "-leading/.hidden/_under",
    "case/A",
    "case/a",
    "dots/a.b/a-b/a..b",
]


def test_a_created_object_is_read_back(store: ObjectStore) -> None:
    """What was put is what is got, also when it is empty."""
    store.put_new("a/b", b"content \x00\xff")
    store.put_new("a/empty", b"")
    assert store.get("a/b") == b"content \x00\xff"
    assert store.get("a/empty") == b""


def test_the_end_of_an_object(store: ObjectStore) -> None:
    """As much as is asked for, or all of a smaller one, with the whole size."""
    store.put("a", b"0123456789")
    assert store.get_end("a", 3) == (b"789", 10)
    assert store.get_end("a", 10) == store.get_end("a", 64) == (b"0123456789", 10)
    with pytest.raises(ObjectNotFound):
        store.get_end("b", 3)


def test_create_only_refuses_a_taken_key_and_keeps_the_first(store: ObjectStore) -> None:
    """The second creator of a key fails, whatever it brings, and the first one's content stays."""
    store.put_new("claims/1", b"first")
    with pytest.raises(ObjectExists) as caught:
        store.put_new("claims/1", b"second")
    assert str(caught.value.ids["key"]).endswith("claims/1")
    with pytest.raises(ObjectExists):
        store.put_new("claims/1", b"first")
    assert store.get("claims/1") == b"first"


def test_a_deleted_key_can_be_created_again(store: ObjectStore) -> None:
    """Create-only asks for the object, not for the history."""
    store.put_new("a", b"1")
    store.delete(["a"])
    store.put_new("a", b"2")
    assert store.get("a") == b"2"


def test_put_replaces(store: ObjectStore) -> None:
    """The heartbeat's put creates and rewrites."""
    store.put("beat", b"1")
    store.put("beat", b"22")
    assert store.get("beat") == b"22"
    assert [info.size for info in store.list("beat")] == [2]


def test_what_is_not_there_is_not_found(store: ObjectStore, tmp_path: Path) -> None:
    """Reading, downloading and looking tell absence apart from failure; deleting does not mind it."""
    store.put_new("folder/object", b"")
    for key in ("nothing", "folder", "folder/object2", "other/deep/key"):
        with pytest.raises(ObjectNotFound) as caught:
            store.get(key)
        assert key in str(caught.value)
        with pytest.raises(ObjectNotFound):
            store.download(key, tmp_path / "target")
        assert not store.exists(key)
    assert store.exists("folder/object")
    store.delete(["nothing", "folder", "folder/object", "folder/object"])
    assert not store.exists("folder/object")


def test_files_go_up_and_come_down(store: ObjectStore, tmp_path: Path) -> None:
    """Uploads and downloads keep every byte of a file, below and above the size that is sent in parts."""
    for name, size in {"empty": 0, "small": 1000, "large": 17 * 2**20 + 5}.items():
        source, target = tmp_path / name, tmp_path / f"{name}.back"
        source.write_bytes(bytes(range(256)) * (size // 256) + bytes(size % 256))
        store.upload(f"partitions/{name}", source)
        store.download(f"partitions/{name}", target)
        assert target.read_bytes() == source.read_bytes()
    assert {info.key: info.size for info in store.list("partitions/")} == {
        "partitions/empty": 0,
        "partitions/large": 17 * 2**20 + 5,
        "partitions/small": 1000,
    }


def test_listing_is_ordered_by_whole_key_and_cut_by_prefix(store: ObjectStore) -> None:
    """The order is that of the keys, not of folders, and a prefix may end within a name."""
    keys = ["a-b", "a.txt", "a/b", "a/b/c.x", "a/b.x", "a0", "ab/c", "b", "b/c/d"]
    keys = [key for key in keys if key not in {"b", "a/b"}]  # a file system cannot hold b and b/c/d
    for key in reversed(keys):
        store.put_new(key, key.encode())
    assert [info.key for info in store.list("")] == sorted(keys)
    assert [info.key for info in store.list("a/")] == ["a/b.x", "a/b/c.x"]
    assert [info.key for info in store.list("a")] == ["a-b", "a.txt", "a/b.x", "a/b/c.x", "a0", "ab/c"]
    assert [info.key for info in store.list("a/b")] == ["a/b.x", "a/b/c.x"]
    assert [info.key for info in store.list("b/c/d")] == ["b/c/d"]
    assert list(store.list("nothing/here")) == []
    assert list(store.list("b/c/d/e")) == []
    assert all(info.size == len(info.key) and info.modified_at > 1.6e9 for info in store.list(""))


def test_an_empty_store_lists_nothing(store: ObjectStore) -> None:
    """A root that was never written to is empty, not an error."""
    assert list(store.list("")) == []


def test_odd_keys_are_taken_literally(store: ObjectStore) -> None:
    """No character of a key is interpreted: it is created, listed, read and deleted under exactly its name."""
    for key in ODD_KEYS:
        store.put_new(f"odd/{key}", key.encode())
    assert [info.key for info in store.list("odd/")] == sorted(f"odd/{key}" for key in ODD_KEYS)
    for key in ODD_KEYS:
        assert store.get(f"odd/{key}") == key.encode()
        assert [info.key for info in store.list(f"odd/{key}")] == [f"odd/{key}"]
    store.delete(f"odd/{key}" for key in ODD_KEYS)
    assert list(store.list("")) == []


def test_keys_that_lead_elsewhere_are_refused(store: ObjectStore, tmp_path: Path) -> None:
    """No key can leave the root or mean two things."""
    for key in ("", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\0b"):
        for operation in (
            lambda key: store.put_new(key, b""),
            lambda key: store.put(key, b""),
            lambda key: store.get(key),
            lambda key: store.exists(key),
            lambda key: store.delete([key]),
            lambda key: store.download(key, tmp_path / "x"),
        ):
            with pytest.raises(ConfigurationError, match="cannot be an object's key"):
                operation(key)
        if key not in {"", "a/"}:
            with pytest.raises(ConfigurationError):
                list(store.list(key))


def test_the_check_leaves_nothing_behind(store: ObjectStore) -> None:
    """The check passes on a sound store, twice, and cleans up after itself."""
    check_store(store)
    check_store(store)
    assert list(store.list("")) == []


def test_stores_under_one_root_share_and_siblings_do_not(store: ObjectStore) -> None:
    """A key that only begins like another's folder is not in it."""
    store.put_new("job/x", b"")
    store.put_new("job2/x", b"")
    assert [info.key for info in store.list("job/")] == ["job/x"]


@pytest.mark.parametrize(
    ("store", "size"),
    [
        ("file", 100),
        ("file", 2**20),
        pytest.param("gateway", 100, marks=pytest.mark.process),
        pytest.param("gateway", 6 * 2**20, marks=pytest.mark.process),
    ],
    indirect=["store"],
)
def test_one_of_sixteen_racing_creators_wins(store: ObjectStore, size: int) -> None:
    """A create-only race has exactly one winner, and the object is wholly the winner's."""
    for round_ in range(5 if size < 1000 else 2):
        start = threading.Barrier(16)

        def create(number: int, key: str = f"race/{round_}", start: threading.Barrier = start) -> bool:
            body = bytes([number]) * size
            start.wait()
            try:
                store.put_new(key, body)
            except ObjectExists:
                return False
            return True

        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(create, range(16)))
        assert won.count(True) == 1
        assert store.get(f"race/{round_}") == bytes([won.index(True)]) * size


def test_readers_never_meet_half_an_object(files: ObjectStore) -> None:
    """While one rewrites, others read one version or the other, never a mixture or nothing."""
    bodies = [bytes([n]) * 300_000 for n in range(2)]
    files.put("beat", bodies[0])
    done = threading.Event()

    def rewrite() -> None:
        for turn in range(50):
            files.put("beat", bodies[turn % 2])
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(rewrite)
        seen = set()
        while not done.is_set() and not writing.done():
            seen.add(files.get("beat"))
        writing.result()
    assert seen <= set(bodies)


@pytest.mark.few(1)
@pytest.mark.integration
def test_a_thousand_and_more_objects_are_listed_and_deleted_in_pages(store: ObjectStore) -> None:
    """Paging loses and doubles nothing, in listing and in deletion."""
    keys = [f"many/{number:05d}" for number in range(1_203)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put_new(key, b"x"), keys))
    store.put_new("other", b"")
    assert [info.key for info in store.list("many/")] == keys
    store.delete(keys)
    assert [info.key for info in store.list("")] == ["other"]


def test_a_file_that_nobody_changes_is_shared_and_borrowed(store: ObjectStore, tmp_path: Path) -> None:
    """The object has the file's content, outlives the file, is there under another name, too, and may be replaced."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"blocks")
    store.share("jobs/a/blocks", source)
    source.unlink()
    assert store.get("jobs/a/blocks") == b"blocks"
    store.borrow("jobs/a/blocks", target)
    assert target.read_bytes() == b"blocks"
    source.write_bytes(b"others")
    store.share("jobs/a/blocks", source)
    assert store.get("jobs/a/blocks") == b"others"
    assert target.read_bytes() == b"blocks"
    with pytest.raises(ObjectNotFound):
        store.borrow("jobs/a/other", tmp_path / "nothing")
