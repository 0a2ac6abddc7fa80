"""The partition store: survivors from one listing, and never a damaged one."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider.core.errors import CorruptObject, ObjectNotFound
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore, file_checksum
from tests.storage.conftest import PREFIX
from tests.support.stores import WatchedStore


def _partition(
    index: int = 0, vertex: str = "flights-1a2b", content: bytes = b"parquet", epoch: int = 1
) -> StoredPartition:
    return StoredPartition(
        vertex=vertex,
        layout="n4",
        index=index,
        parallelism=4,
        epoch=1,
        task=index,
        rows=10,
        checksum=f"{zlib.crc32(content):08x}",
        millis=5,
        bytes=len(content),
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"parquet")
    return path


def test_what_was_put_survives_with_its_size(store: ObjectStore, source: Path, tmp_path: Path) -> None:
    """Survivors come back by vertex exactly as they were put, from their names and sizes alone."""
    partitions = PartitionStore(store, PREFIX)
    assert partitions.survivors() == {}
    stored = [_partition(0), _partition(3), _partition(1, "other-ffff")]
    for partition in stored:
        partitions.put(partition, source)
    assert partitions.survivors() == {"flights-1a2b": stored[:2], "other-ffff": stored[2:]}
    partitions.fetch(stored[0], tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"parquet"


def test_survivors_cost_one_listing(files: FileObjectStore, source: Path) -> None:
    """No request per object, also with markers among them."""
    partitions = PartitionStore(files, PREFIX)
    for index in range(4):
        partitions.put(_partition(index), source)
    partitions.mark_corrupt(_partition(2))
    watched = WatchedStore(files)
    assert [p.index for p in PartitionStore(watched, PREFIX).survivors()["flights-1a2b"]] == [0, 1, 3]
    assert watched.calls == {"list": 1}


def test_a_damaged_partition_is_refused_and_never_seen_again_once_marked(
    store: ObjectStore, source: Path, tmp_path: Path
) -> None:
    """Size and checksum are verified on the way in; the marker hides that object, and only that."""
    partitions = PartitionStore(store, PREFIX)
    good, rotten, short = _partition(0), _partition(1, content=b"pARquet"), replace(_partition(2), bytes=8)
    for partition in (good, rotten, short):
        partitions.put(partition, source)
    for partition in (rotten, short):
        with pytest.raises(CorruptObject, match="damaged") as caught:
            partitions.fetch(partition, tmp_path / "back")
        assert partition.key in str(caught.value)
        partitions.mark_corrupt(partition)
        partitions.mark_corrupt(partition)
    assert partitions.survivors() == {"flights-1a2b": [good]}
    again = replace(rotten, epoch=2, checksum=good.checksum)
    partitions.put(again, source)
    assert partitions.survivors() == {"flights-1a2b": [good, again]}


def test_without_a_known_size_the_checksum_decides(files: FileObjectStore, source: Path, tmp_path: Path) -> None:
    """A partition made from its key alone has size 0, which means unknown."""
    partitions = PartitionStore(files, PREFIX)
    partitions.put(_partition(), source)
    known = StoredPartition.from_key(_partition().key, 0)
    assert known is not None
    partitions.fetch(known, tmp_path / "back")
    source.write_bytes(b"parquet!")
    partitions.put(_partition(), source)
    with pytest.raises(CorruptObject):
        partitions.fetch(known, tmp_path / "back")


def test_a_partition_that_is_gone_is_not_found(store: ObjectStore, tmp_path: Path) -> None:
    """Lost is told apart from damaged."""
    with pytest.raises(ObjectNotFound):
        PartitionStore(store, PREFIX).fetch(_partition(), tmp_path / "back")


def test_foreign_objects_are_nobodys_partitions(files: FileObjectStore, source: Path) -> None:
    """Other names below the folder, and other jobs' partitions, do not survive here."""
    partitions = PartitionStore(files, PREFIX)
    partitions.put(_partition(), source)
    PartitionStore(files, "jobs/other/@job").put(_partition(1), source)
    for name in (
        "_SUCCESS",
        "flights-1a2b/n4/part-0.parquet",
        "flights-1a2b/n4/000009-of-000004.e1.t0.r1.c00000000.ms1.parquet",
    ):
        files.put_new(f"{PREFIX}/partitions/{name}", b"x")
    assert partitions.survivors() == {"flights-1a2b": [_partition()]}


def test_release_deletes_and_counts_partitions(store: ObjectStore, source: Path) -> None:
    """Markers go too but do not count; claims and events stay."""
    partitions = PartitionStore(store, PREFIX)
    store.put_new(f"{PREFIX}/claims/00000001.json", b"{}")
    for index in range(3):
        partitions.put(_partition(index), source)
        partitions.put(_partition(index, "flights-1a2b2"), source)
    partitions.mark_corrupt(_partition(2))
    assert partitions.release(up_to=1) == 6
    assert partitions.survivors() == {}
    assert partitions.release(up_to=1) == 0
    assert [info.key for info in store.list("")] == [f"{PREFIX}/claims/00000001.json"]


def test_a_release_leaves_later_attempts_alone(files: FileObjectStore, source: Path) -> None:
    """What a driver that may be at work has stored or marked, and is still writing, stays; foreign objects go."""
    partitions = PartitionStore(files, PREFIX)
    old, new = _partition(), replace(_partition(), epoch=2)
    other = replace(_partition(1), epoch=2)
    for partition in (old, new, other):
        partitions.put(partition, source)
    partitions.mark_corrupt(other)
    files.put_new(f"{PREFIX}/partitions/flights-1a2b/_SUCCESS", b"")
    for epoch, name in ((1, "old"), (2, "new")):  # an unfinished write has a hidden name and a random end
        pending = files.path_of(f"{PREFIX}/{replace(_partition(3), epoch=epoch).key}")
        place = Path(
            str(pending).replace(str(files.path_of("jobs")), str(files.path_of("x").with_name(".tmp") / "jobs"))
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_name(f"{place.name}.{name}").write_bytes(b"half")
    assert partitions.release(up_to=1) == 2
    assert partitions.survivors() == {"flights-1a2b": [new]}
    left = sorted(
        path.name.rpartition(".")[2] for path in files.path_of("x").with_name(".tmp").rglob("*.*") if path.is_file()
    )
    assert left == ["new"]
    assert partitions.abort_uploads(up_to=1) == 0
    assert partitions.abort_uploads(up_to=2) == 1


def test_a_release_cut_short_never_revives_a_damaged_partition(files: FileObjectStore, source: Path) -> None:
    """Objects go before markers: whatever is left, the marked one stays hidden."""
    partitions = PartitionStore(files, PREFIX)
    for index in range(4):
        partitions.put(_partition(index), source)
    partitions.mark_corrupt(_partition(1))
    deleted: list[str] = []

    class OneByOne(WatchedStore):
        def delete(self, keys: object) -> None:
            for key in keys:  # type: ignore[attr-defined]
                deleted.append(key)
                self.store.delete([key])
                left = PartitionStore(self.store, PREFIX).survivors()
                assert 1 not in [p.index for ps in left.values() for p in ps]

    assert PartitionStore(OneByOne(files), PREFIX).release(up_to=1) == 4
    assert len(deleted) == 5


def test_the_checksum_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    """CRC-32 in eight digits, in chunks or at once."""
    path = tmp_path / "file"
    for content in (b"", b"a", bytes(range(256)) * 10_000):
        path.write_bytes(content)
        assert file_checksum(path) == f"{zlib.crc32(content):08x}"
