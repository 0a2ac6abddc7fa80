"""Map outputs as objects: what is put back is what Spark has written, or nothing. No Spark runs here."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider.core.errors import CorruptObject
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.spark.local_dirs import LocalDirs, NoRoom
from airflow_provider.spark.points.partition_io import Place
from airflow_provider.spark.shuffles.map_output import (
    MapOutput,
    Written,
    remove_map_output,
    restore_map_output,
    store_map_output,
)
from airflow_provider.storage.partition_store import PartitionStore, file_checksum
from airflow_provider.storage.uris import open_store

PLACE = Place(vertex="shuffle-0", layout="l", index=3, parallelism=8, epoch=1, task=7)
OLD, NEW = MapOutput(shuffle=5, task=7), MapOutput(shuffle=0, task=2**40 + 3)
WRITTEN = Written(rows=12, size=345, checksum=-6)


def local_dirs(folder: Path, *names: str) -> LocalDirs:
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    return LocalDirs(tuple(str(folder / name) for name in names), 64)


def write(dirs: LocalDirs, output: MapOutput, data: bytes, sizes: list[int]) -> None:
    offsets = [0, *accumulate(sizes)]
    for name, content in ((output.index, struct.pack(f">{len(offsets)}q", *offsets)), (output.data, data)):
        if content:
            dirs.file(name).parent.mkdir(parents=True, exist_ok=True)
            dirs.file(name).write_bytes(content)


def partition_store(folder: Path, secret: str = "") -> PartitionStore:
    return PartitionStore(open_store(f"file://{folder}/store", integrity_secret=secret), "jobs/a")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(chunks=st.lists(st.binary(max_size=50), min_size=1, max_size=9))
def test_what_is_put_back_is_what_was_written(tmp_path: Path, chunks: list[bytes]) -> None:
    """The same files under new names in other directories, with what Spark counted and each reducer's size."""
    store = partition_store(tmp_path)
    old, new = local_dirs(tmp_path, "a", "b"), local_dirs(tmp_path, "x")
    for dirs in (old, new):
        for path in dirs.paths:
            for file in Path(path).rglob("shuffle_*"):
                file.unlink()
    data = b"".join(chunks)
    write(old, OLD, data, [len(chunk) for chunk in chunks])
    partition = store_map_output(store, old, OLD, PLACE, WRITTEN, seconds=1.5)
    assert partition is not None
    assert StoredPartition.from_key(partition.key, partition.bytes - partition.blocks) == partition
    restored = restore_map_output(store, new, partition, NEW)
    assert restored.sizes == tuple(len(chunk) for chunk in chunks)
    assert restored.written == WRITTEN
    assert (partition.rows, partition.blocks) == (WRITTEN.rows, len(data))
    assert new.file(NEW.index).read_bytes() == old.file(OLD.index).read_bytes()
    assert (new.file(NEW.data).read_bytes() if data else b"") == data
    assert not [path for dirs in (old, new) for root in dirs.paths for path in Path(root).glob("spark-recovery-*")]
    remove_map_output(new, NEW)
    assert not list(Path(new.paths[0]).rglob("shuffle_*"))


def test_what_an_executor_has_left_is_stored_by_another(tmp_path: Path) -> None:
    """The files are read where they lie; of its other directories, and checksums, the service has left nothing."""
    store, left, own = partition_store(tmp_path), local_dirs(tmp_path, "a", "b"), local_dirs(tmp_path, "x")
    tasks = (MapOutput(shuffle=5, task=number) for number in range(100))
    output = next(each for each in tasks if {left.directory(each.index), left.directory(each.data)} == {tmp_path / "b"})
    write(left, output, b"rows", [1, 3])
    (tmp_path / "a").rmdir()
    partition = store_map_output(store, own, output, PLACE, WRITTEN, seconds=1.5, left=left)
    assert partition is not None
    assert restore_map_output(store, own, partition, NEW).sizes == (1, 3)


def test_the_room_that_counts_is_on_the_disk_that_the_file_goes_to(tmp_path: Path, small_disk: Path) -> None:
    """Of an executor's disks, Spark looks for a file on a certain one; if that is full, nothing is put there."""
    store, old = partition_store(tmp_path), local_dirs(tmp_path, "a")
    write(old, OLD, b"rows", [4])
    partition = store_map_output(store, old, OLD, PLACE, WRITTEN, seconds=1.5)
    assert partition is not None
    new = local_dirs(tmp_path, "large", small_disk.name)
    (small_disk / "full").write_bytes(bytes(950 * 2**10))
    outputs = [MapOutput(shuffle=0, task=2**40 + index) for index in range(8)]
    goes_there = next(output for output in outputs if new.file(output.data).is_relative_to(small_disk))
    with pytest.raises(NoRoom, match="which tasks will need"):
        restore_map_output(store, new, partition, goes_there)
    assert not list(small_disk.rglob("shuffle_*"))


@pytest.mark.parametrize("missing", ["index", "data"])
def test_files_that_are_not_here_are_not_stored(tmp_path: Path, missing: str) -> None:
    """They are on another executor, or gone with it."""
    dirs = local_dirs(tmp_path, "a")
    write(dirs, OLD, b"rows", [1, 3])
    dirs.file(getattr(OLD, missing)).unlink()
    assert store_map_output(partition_store(tmp_path), dirs, OLD, PLACE, WRITTEN, 1) is None
    assert partition_store(tmp_path).survivors() == {}


def test_files_that_are_not_whole_are_not_stored(tmp_path: Path) -> None:
    """The index tells how long the data has to be."""
    dirs = local_dirs(tmp_path, "a")
    write(dirs, OLD, b"row", [1, 3])
    assert store_map_output(partition_store(tmp_path), dirs, OLD, PLACE, WRITTEN, 1) is None


@pytest.mark.parametrize("harm", ["flipped", "short", "foreign", "blocks flipped", "blocks short"])
def test_a_damaged_object_is_refused_and_marked(tmp_path: Path, harm: str) -> None:
    """Nothing of it is put back, and no later attempt finds it; also where only its form is wrong."""
    store, dirs, new = partition_store(tmp_path), local_dirs(tmp_path, "a"), local_dirs(tmp_path, "x")
    write(dirs, OLD, b"rows", [1, 3])
    partition = store_map_output(store, dirs, OLD, PLACE, WRITTEN, 1)
    assert partition is not None
    (file,) = (tmp_path / "store").rglob("*.shuffle.blocks" if harm.startswith("blocks") else "*.shuffle")
    content = file.read_bytes()
    file.unlink()  # it may be the file in the executor's directory by another name
    if harm == "foreign":
        other = tmp_path / "other"
        other.write_bytes(b"PAR1")
        partition = replace(partition, checksum=file_checksum(other), bytes=4 + partition.blocks)
        store.put(partition, other)
    else:
        file.write_bytes(content[:-1] if harm.endswith("short") else content[:-1] + b"?")
    with pytest.raises(CorruptObject):
        restore_map_output(store, new, partition, NEW)
    assert store.survivors() == {}
    assert not list(Path(new.paths[0]).rglob("shuffle_*"))


def test_no_harm_reaches_spark(tmp_path: Path) -> None:
    """Any byte of description or rows changed, either cut anywhere or made longer, or those of another map output."""
    store, new = partition_store(tmp_path), local_dirs(tmp_path, "x")
    stored = []
    for number, chunks in enumerate(([b"first", b"", b"rows"], [b"others", b"row", b""])):
        dirs = local_dirs(tmp_path, f"a{number}")
        write(dirs, OLD, b"".join(chunks), [len(chunk) for chunk in chunks])
        partition = store_map_output(store, dirs, OLD, replace(PLACE, index=number), WRITTEN, 1)
        assert partition is not None
        stored.append(partition)
    first, second = (tmp_path / "store/jobs/a" / partition.key for partition in stored)
    rows, other = (path.with_name(f"{path.name}.blocks") for path in (first, second))
    for file, foreign in ((first, second.read_bytes()), (rows, other.read_bytes())):
        content = file.read_bytes()
        harms = [content[:length] for length in range(len(content))] + [content + b"\0", content * 2, foreign]
        for position, byte in enumerate(content):
            harms.append(content[:position] + bytes([byte ^ 1 << position % 8]) + content[position + 1 :])
        for harm in harms:
            file.unlink()
            file.write_bytes(harm)
            with pytest.raises(CorruptObject):
                restore_map_output(store, new, stored[0], NEW)
            assert not list(Path(new.paths[0]).rglob("shuffle_*"))
        file.write_bytes(content)
    assert restore_map_output(store, new, stored[0], NEW).sizes == (5, 0, 4)


@pytest.mark.parametrize("forged", ["all of it", "its rows"])
def test_with_a_secret_no_forgery_reaches_spark(tmp_path: Path, forged: str) -> None:
    """What another map output's object holds, sealed as it is, is none of this one's, though all checksums agree.

    No list of survivors has been looked through here: the executor itself verifies what it fetches.
    """
    store, new = partition_store(tmp_path, "5ea1" * 16), local_dirs(tmp_path, "x")
    stored = []
    for number, rows in enumerate((b"first", b"other")):
        dirs = local_dirs(tmp_path, f"a{number}")
        write(dirs, OLD, rows, [5])
        partition = store_map_output(store, dirs, OLD, replace(PLACE, index=number), WRITTEN, 1)
        assert partition is not None
        stored.append(partition)
    wanted, other = stored
    root = tmp_path / "store/jobs/a"
    if forged == "all of it":
        wanted = replace(wanted, checksum=other.checksum)  # it is a part of the name
        (root / wanted.key).write_bytes((root / other.key).read_bytes())
    (root / f"{wanted.key}.blocks").write_bytes((root / f"{other.key}.blocks").read_bytes())
    with pytest.raises(CorruptObject, match="not sealed with this integrity secret"):
        restore_map_output(store, new, wanted, NEW)
    assert not list(Path(new.paths[0]).rglob("shuffle_*"))
    assert restore_map_output(store, new, other, NEW).sizes == (5,)
