"""The partition store: survivors from one listing, and never a damaged one."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core.errors import CorruptObject, ObjectNotFound
from airflow_provider.core.partitions import WRITTEN, StoredPartition, WriteFolder
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.parquet_footer import footer_of
from airflow_provider.storage.partition_store import PartitionStore, file_checksum
from airflow_provider.storage.s3.s3_store import S3ObjectStore
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


def mark_folder(store: S3ObjectStore, key: str) -> None:
    """Do what Hadoop's S3A does where a folder is made."""
    store._client.put_object(Bucket=store._bucket, Key=f"{store._prefix}{key}", Body=b"")


def all_keys(store: S3ObjectStore) -> list[str]:
    """What is there, whoever has made it."""
    found = store._client.list_objects_v2(Bucket=store._bucket, Prefix=store._prefix)
    return [entry["Key"].removeprefix(store._prefix) for entry in found.get("Contents", [])]


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


FOLDER = WriteFolder(vertex="flights-1a2b", layout="n4", parallelism=4, epoch=2, number=1)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A Parquet file of seven rows, of columns of several types."""
    path = tmp_path / "written.parquet"
    pq.write_table(pa.table({"c0": range(7), "c1": [str(i) for i in range(7)], "c2": [[{"a": True}]] * 7}), path)
    return path


@pytest.fixture
def left(files: FileObjectStore, written: Path) -> FileObjectStore:
    """What a job of attempt 2 has left that was killed: two whole files, half of one, and one that no task finished."""
    place = f"{PREFIX}/{FOLDER.key}"
    for name in ("part-00001-written-c000.zstd.parquet", "part-00003-written-c000.zstd.parquet"):
        files.upload(f"{place}/{name}", written)
        files.put_new(f"{place}/.{name}.crc", b"crc")
    files.put_new(f"{place}/part-00002-written-c000.zstd.parquet", written.read_bytes()[:-20])
    files.upload(f"{place}/_temporary/0/_temporary/attempt_1/part-00000-written-c000.zstd.parquet", written)
    return files


def test_what_spark_wrote_for_a_dead_driver_becomes_partitions(left: FileObjectStore, written: Path) -> None:
    """Each whole file of an earlier attempt is a partition, with its rows and checksum; nothing else is, and the folder
    goes.
    """
    partitions = PartitionStore(left, PREFIX)
    assert partitions.survivors() == {}
    checksum = f"{zlib.crc32(written.read_bytes()):08x}"
    expected = [FOLDER.partition(i, rows=7, checksum=checksum, bytes=written.stat().st_size) for i in (1, 3)]
    assert partitions.adopt(1, 3) == {"flights-1a2b": expected} == partitions.survivors()
    assert [info.key for info in left.list("")] == [f"{PREFIX}/{each.key}" for each in expected]
    assert partitions.adopt(1, 3) == {"flights-1a2b": expected}


def test_what_has_its_key_already_is_not_taken_twice(left: FileObjectStore, written: Path) -> None:
    """A driver died between giving a file its key and removing it from its folder."""
    partitions = PartitionStore(left, PREFIX)
    taken = replace(partitions.adopt(1, 3)["flights-1a2b"][0], task=17)
    partitions.delete(partitions.survivors()["flights-1a2b"])
    partitions.put(taken, written)
    left.upload(f"{PREFIX}/{FOLDER.key}/part-00001-written-c000.zstd.parquet", written)
    assert partitions.adopt(1, 3) == {"flights-1a2b": [taken]}


@pytest.mark.parametrize(("base", "before", "layout"), [(3, 4, "n4"), (1, 3, "whole")])
def test_what_counts_no_more_is_not_taken(
    files: FileObjectStore, written: Path, base: int, before: int, layout: str
) -> None:
    """Neither from an attempt that was given up nor of a vertex that is kept all or none; it is deleted."""
    folder = replace(FOLDER, layout=layout)
    files.upload(f"{PREFIX}/{folder.key}/part-00001-written-c000.zstd.parquet", written)
    assert PartitionStore(files, PREFIX).adopt(base, before) == {}
    assert not list(files.list(""))


def test_what_spark_writes_for_a_later_attempt_stays(left: FileObjectStore) -> None:
    """A driver that was overtaken neither takes nor releases it."""
    before = list(left.list(""))
    partitions = PartitionStore(left, PREFIX)
    assert partitions.adopt(1, 2) == {}
    partitions.release(1)
    assert list(left.list("")) == before
    partitions.release(2)
    assert not list(left.list(""))


@pytest.fixture
def named(server_store: ObjectStore, written: Path) -> list[StoredPartition]:
    """What a job of attempt 2 has left on S3: two files that its driver has named, and one that it has not come to."""
    for index in (0, 1, 2):
        server_store.upload(f"{PREFIX}/{FOLDER.file_of(index)}", written)
    server_store.upload(f"{PREFIX}/{FOLDER.key}/_temporary/0/attempt_1/part-00003-written-c000.zstd.parquet", written)
    partitions = PartitionStore(server_store, PREFIX)
    return [partitions.name_written(FOLDER, index, rows=7, task=index, millis=9) for index in (0, 1)]


def test_what_spark_wrote_on_s3_stays_where_it_is(
    server_store: ObjectStore, named: list[StoredPartition], written: Path, tmp_path: Path
) -> None:
    """A small object names it, with the rows and the checksum of its footer; to name it again says the same."""
    partitions = PartitionStore(server_store, PREFIX)
    assert partitions.survivors() == {"flights-1a2b": named}
    assert {(each.rows, each.blocks, each.suffix) for each in named} == {(7, written.stat().st_size, WRITTEN)}
    assert partitions.name_written(FOLDER, 0, rows=7, task=0, millis=9) == named[0]
    partitions.fetch(named[0], tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == written.read_bytes()


def test_a_dead_drivers_files_on_s3_are_named(server_store: ObjectStore, named: list[StoredPartition]) -> None:
    """Those that a task has committed become partitions, once; what no task committed goes, and no file is copied."""
    partitions = PartitionStore(server_store, PREFIX)
    found = partitions.adopt(1, 3)
    assert [each.index for each in found["flights-1a2b"]] == [0, 1, 2]
    assert found["flights-1a2b"][:2] == named
    assert partitions.adopt(1, 3) == found == partitions.survivors()
    keys = {f"{PREFIX}/{key}" for each in found["flights-1a2b"] for key in (each.key, each.content_key)}
    assert {info.key for info in server_store.list("")} == keys


@pytest.mark.parametrize("lost", ["gone", "cut"])
def test_a_name_without_its_file_is_no_partition(
    server_store: ObjectStore, named: list[StoredPartition], written: Path, tmp_path: Path, lost: str
) -> None:
    """The listing tells: the file has to be there with the bytes that the name says."""
    partitions, key = PartitionStore(server_store, PREFIX), f"{PREFIX}/{named[0].content_key}"
    if lost == "gone":
        server_store.delete([key])
    else:
        (tmp_path / "cut").write_bytes(written.read_bytes()[:-1])
        server_store.upload(key, tmp_path / "cut")
    assert partitions.survivors() == {"flights-1a2b": named[1:]}


def test_only_a_whole_file_with_the_rows_of_its_task_is_named(server_store: ObjectStore, written: Path) -> None:
    """Otherwise an error names it; a task without rows has left no file, and needs none."""
    partitions, content = PartitionStore(server_store, PREFIX), written.read_bytes()
    with pytest.raises(ObjectNotFound):
        partitions.name_written(FOLDER, 0, rows=7)
    server_store.put(f"{PREFIX}/{FOLDER.file_of(0)}", content[:-9])
    server_store.put(f"{PREFIX}/{FOLDER.file_of(1)}", content)
    for index in (0, 1):
        with pytest.raises(CorruptObject, match=f"part-0000{index}.*no Parquet file with 8 rows"):
            partitions.name_written(FOLDER, index, rows=8)
    empty = partitions.name_written(FOLDER, 2, rows=0)
    assert partitions.survivors() == {"flights-1a2b": [empty]}
    partitions.end_write(FOLDER, [empty])
    assert [info.key for info in server_store.list("")] == [f"{PREFIX}/{empty.key}"]


def test_a_large_footer_is_read_whole(server_store: ObjectStore, tmp_path: Path) -> None:
    """One of more than 64 KiB takes a second request."""
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"column_{i}": [i] for i in range(1500)}), path)
    footer = footer_of(path)
    assert footer is not None
    server_store.upload(f"{PREFIX}/{FOLDER.file_of(0)}", path)
    watched = WatchedStore(server_store)
    partition = PartitionStore(watched, PREFIX).name_written(FOLDER, 0, rows=1)
    assert (partition.rows, partition.checksum) == (1, footer.checksum)
    assert watched.calls == {"get_end": 2, "put": 1}


def test_a_damaged_file_on_s3_is_refused(
    server_store: ObjectStore, named: list[StoredPartition], written: Path, tmp_path: Path
) -> None:
    """Of a file that is no partition any more the footer tells."""
    content = bytearray(written.read_bytes())
    content[-20] ^= 1
    server_store.put(f"{PREFIX}/{named[0].content_key}", bytes(content))
    with pytest.raises(CorruptObject, match=named[0].content_key):
        PartitionStore(server_store, PREFIX).fetch(named[0], tmp_path / "back")


def test_deleting_a_name_deletes_its_file(server_store: ObjectStore, named: list[StoredPartition]) -> None:
    """By itself, beside what is kept, and with all of a job; a file that another name needs stays."""
    partitions, file = PartitionStore(server_store, PREFIX), f"{PREFIX}/{named[0].content_key}"
    twin = partitions.name_written(FOLDER, 0, rows=7, task=1, millis=4)
    assert partitions.release_beside("flights-1a2b", [twin.key, named[1].key], 2, 5) == 1
    assert partitions.survivors() == {"flights-1a2b": [twin, named[1]]}
    partitions.delete([twin])
    assert not server_store.exists(file)
    assert isinstance(server_store, S3ObjectStore)
    mark_folder(server_store, f"{PREFIX}/{FOLDER.key}/")
    assert partitions.release(2) == 1
    assert all_keys(server_store) == []


def test_marks_of_folders_are_no_objects(server_store: ObjectStore, named: list[StoredPartition]) -> None:
    """Hadoop makes some: no listing has them, and they go with their folder."""
    assert isinstance(server_store, S3ObjectStore)
    before = list(server_store.list(""))
    for folder in (f"{PREFIX}/partitions/", f"{PREFIX}/{FOLDER.key}/", f"{PREFIX}/{FOLDER.key}/_temporary/0/"):
        mark_folder(server_store, folder)
    assert list(server_store.list("")) == before
    partitions = PartitionStore(server_store, PREFIX)
    partitions.end_write(FOLDER, named)
    assert [key for key in all_keys(server_store) if key.endswith("/")] == [f"{PREFIX}/partitions/"]
    assert partitions.survivors() == {"flights-1a2b": named}


def test_a_footer_that_is_none(written: Path, tmp_path: Path) -> None:
    """Whatever stands at a file's end, the answer is its footer or none."""
    content = written.read_bytes()
    path = tmp_path / "other"
    found = footer_of(written)
    assert found is not None
    assert found.rows == 7
    for other in (
        b"",
        b"PAR1",
        b"PAR1PAR1PAR1",
        content[:-1],
        content[:-9] + b"\xff" + content[-8:],
        b"x" + content[1:],
    ):
        path.write_bytes(other)
        footer = footer_of(path)
        assert footer is None or (footer.rows == 7 and footer.checksum != found.checksum)
    for end in range(len(content) - 60, len(content) - 8):
        path.write_bytes(b"PAR1" + content[end - 30 : end] + (30).to_bytes(4, "little") + b"PAR1")
        footer = footer_of(path)
        assert footer is None or footer.rows != 7
