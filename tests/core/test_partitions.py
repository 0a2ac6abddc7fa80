"""Partition names, and which of several objects may be used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.job import encode_segment
from airflow_provider.core.partitions import MAP_OUTPUT, ROWS, WRITTEN, StoredPartition, WriteFolder, choose

_segments = st.text(max_size=20).map(encode_segment)


@st.composite
def partitions(draw: st.DrawFn) -> StoredPartition:
    parallelism = draw(st.integers(1, 10**7))
    number = st.integers(0, 10**12)
    suffix = draw(st.sampled_from([ROWS, MAP_OUTPUT, WRITTEN]))
    size, blocks = draw(number), 0 if suffix == ROWS else draw(number)
    return StoredPartition(
        vertex=draw(_segments),
        layout=draw(_segments),
        index=draw(st.integers(0, parallelism - 1)),
        parallelism=parallelism,
        epoch=draw(number),
        task=draw(number),
        rows=draw(number),
        checksum=f"{draw(st.integers(0, 2**32 - 1)):08x}",
        millis=draw(number),
        bytes=size + blocks if size else 0,
        suffix=suffix,
        blocks=blocks,
        write=draw(number) if suffix == WRITTEN else 0,
    )


@given(partitions())
def test_a_partition_survives_its_key(partition: StoredPartition) -> None:
    """The key and the size of the object say everything."""
    size = max(0, partition.bytes - partition.blocks)
    assert StoredPartition.from_key(partition.key, size) == partition


@given(partitions())
def test_the_content_of_a_partition_lies_in_its_own_object_or_in_its_write(partition: StoredPartition) -> None:
    """What Spark's writer has made is found by the key that names it, and knows whose it is."""
    if partition.suffix != WRITTEN:
        assert partition.content_key == partition.key
        return
    found = WriteFolder.of_object(partition.content_key)
    assert found is not None
    folder, index = found
    assert (folder.vertex, folder.layout, folder.epoch, folder.number) == (
        partition.vertex,
        partition.layout,
        partition.epoch,
        partition.write,
    )
    assert index == partition.index
    assert StoredPartition.from_key(partition.content_key, 1) is None


def test_the_form_of_a_key_is_fixed() -> None:
    """Partitions of an earlier release must be found."""
    partition = StoredPartition("sessions-1a2b", "n16", 3, 16, 2, 7, 1000, "0123abcd", 1500, 9)
    assert partition.key == "partitions/sessions-1a2b/n16/000003-of-000016.e2.t7.r1000.c0123abcd.ms1500.parquet"
    written = replace(partition, suffix=WRITTEN, blocks=4096, write=5)
    assert written.key == "partitions/sessions-1a2b/n16/000003-of-000016.e2.t7.r1000.c0123abcd.ms1500.b4096.w5.written"
    assert written.content_key == "partitions/sessions-1a2b/n16/000016.e2.w5/part-00003-written-c000.zstd.parquet"


GOOD = "partitions/v/l/000003-of-000016.e2.t7.r1000.c0123abcd.ms1500.parquet"


@pytest.mark.parametrize(
    "key",
    [
        "",
        f"x/{GOOD}",
        GOOD + ".corrupt",
        GOOD.removesuffix(".parquet"),
        GOOD.replace("/v/", "/"),
        GOOD.replace("/v/", "/v/w/"),
        GOOD.replace("000003-", "000016-"),
        GOOD.replace("000003-", "3-"),
        GOOD.replace("000003-", "0000003-"),
        GOOD.replace("000003-", "00000٣-"),
        GOOD.replace(".e2.", ".e02."),
        GOOD.replace(".e2.", ".e-2."),
        GOOD.replace("0123abcd", "0123ABCD"),
        GOOD.replace("0123abcd", "123abcd"),
        GOOD + "\n",
    ],
)
def test_any_other_name_is_nobodys_partition(key: str) -> None:
    """A name that was not written by us, or not exactly so, is never used."""
    assert StoredPartition.from_key(GOOD, 1) is not None
    assert StoredPartition.from_key(key, 1) is None


def _stored(index: int, *, epoch: int = 1, task: int = 0, layout: str = "l", of: int = 3) -> StoredPartition:
    return StoredPartition("v", layout, index, of, epoch, task, 10, "00000000", 5, 100)


def _choose(
    candidates: list[StoredPartition], recorded: dict[int, str] | None = None, *, deterministic: bool = True
) -> dict[int, StoredPartition]:
    return choose(candidates, layout="l", parallelism=3, recorded=recorded or {}, deterministic=deterministic)


def test_a_deterministic_vertex_keeps_what_is_there() -> None:
    """Partitions that no event mentions, because the driver died first, count."""
    assert _choose([_stored(0), _stored(2)]) == {0: _stored(0), 2: _stored(2)}


def test_another_layout_or_number_never_mixes() -> None:
    """The same index covers other rows there."""
    assert _choose([_stored(0, layout="m"), _stored(1, of=4)]) == {}


@given(st.permutations([_stored(0, epoch=2), _stored(0, epoch=1, task=9), _stored(0, epoch=1, task=3)]))
def test_of_several_the_recorded_one_wins_then_the_earliest(candidates: list[StoredPartition]) -> None:
    """Whatever the order of the listing."""
    assert _choose(candidates) == {0: _stored(0, epoch=1, task=3)}
    assert _choose(candidates, {0: _stored(0, epoch=2).key}) == {0: _stored(0, epoch=2)}
    assert _choose(candidates, {0: "lost"}) == {0: _stored(0, epoch=1, task=3)}


def test_what_is_not_deterministic_is_kept_whole_or_not_at_all() -> None:
    """One attempt wrote and recorded every partition, or nothing is used."""
    whole = [_stored(index) for index in range(3)]
    recorded = {p.index: p.key for p in whole}
    assert _choose(whole, recorded, deterministic=False) == {p.index: p for p in whole}
    assert _choose(whole, {0: whole[0].key, 1: whole[1].key}, deterministic=False) == {}
    assert _choose(whole[:2], recorded, deterministic=False) == {}
    mixed = [*whole[:2], _stored(2, epoch=2)]
    assert _choose(mixed, {p.index: p.key for p in mixed}, deterministic=False) == {}
    another_try = [*whole[:2], _stored(2, task=5)]
    assert _choose(another_try, recorded, deterministic=False) == {}


@given(
    st.lists(
        st.builds(
            lambda index, epoch, task, layout, of: _stored(index, epoch=epoch, task=task, layout=layout, of=of),
            st.integers(0, 2),
            st.integers(1, 3),
            st.integers(0, 2),
            st.sampled_from("lm"),
            st.sampled_from([3, 4]),
        )
    ),
    st.booleans(),
)
def test_what_is_chosen_is_always_allowed(candidates: list[StoredPartition], deterministic: bool) -> None:
    """Never an object of another layout, never one that was not offered; without determinism all of one attempt."""
    recorded = {p.index: p.key for p in candidates[::2]}
    chosen = _choose(candidates, recorded, deterministic=deterministic)
    for index, partition in chosen.items():
        assert partition in candidates
        assert (partition.index, partition.layout, partition.parallelism) == (index, "l", 3)
    if not deterministic:
        assert len(chosen) in {0, 3}
        assert len({p.epoch for p in chosen.values()}) <= 1
        assert all(recorded[index] == p.key for index, p in chosen.items())
    else:
        assert set(chosen) == {p.index for p in candidates if (p.layout, p.parallelism) == ("l", 3)}
