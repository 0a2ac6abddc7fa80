"""Telling from listings whether an output is there as a write left it."""

from __future__ import annotations

from airflow_provider.core.committed_output import Commit, contents_digest, listing_digest, write_of

ONE, OTHER = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def files(write: str, count: int = 3, size: int = 10, time: int = 1) -> list[tuple[str, int, int]]:
    return [(f"file:/out/part-{i:05}-{write}-c000.snappy.parquet", size, time) for i in range(count)]


def test_the_write_is_in_its_files_names() -> None:
    """Plain, in partitions and in buckets; other names tell nothing."""
    assert write_of(f"file:/out/part-00000-{ONE}-c000.snappy.parquet") == ONE
    assert write_of(f"s3a://b/out/year=2026/part-00012-{ONE}.c000.json") == ONE
    assert write_of(f"file:/out/part-00000-{ONE}_00001.c000.snappy.parquet") == ONE
    assert write_of("file:/out/data.parquet") == ""
    assert write_of(f"file:/part-00000-{ONE}-c000/data.parquet") == ""


def test_what_one_write_has_left() -> None:
    """Only what is new counts; nothing new, two writes at once and foreign names are no commit."""
    commit = Commit.between(files(OTHER), files(OTHER) + files(ONE))
    assert commit == Commit(ONE, 3, 30, listing_digest(files(ONE)), contents_digest(files(ONE)))
    assert Commit.from_state(commit.to_state()) == commit
    assert Commit.between(files(ONE), files(ONE)) is None
    assert Commit.between([], files(ONE) + files(OTHER)) is None
    assert Commit.between([], [*files(ONE), ("file:/out/data.parquet", 1, 1)]) is None
    assert Commit.from_state({"status": "WRITING", "before": ""}) is None


def test_any_change_shows() -> None:
    """A file that is gone, new, longer or touched; files of others are none of its business unless it overwrites."""
    commit = Commit.between([], files(ONE))
    assert commit is not None
    assert commit.changed(files(ONE)[::-1] + files(OTHER)) == ""
    assert commit.changed(files(ONE, 2)) == "2 of its 3 files are there"
    assert commit.changed(files(ONE, 4)) == "4 of its 3 files are there"
    assert commit.changed(files(ONE, size=11)) == "its files were changed"
    assert commit.changed(files(ONE, time=2)) == "its files were changed"
    assert commit.others(files(ONE)) == ""
    assert commit.others(files(ONE) + files(OTHER)) == "3 other files are there"


def test_what_a_write_of_a_name_has_left() -> None:
    """Its files alone; of a write without rows nothing is there."""
    assert Commit.named(ONE, files(ONE) + files(OTHER)) == Commit.between([], files(ONE))
    assert Commit.named(ONE, files(OTHER)) == Commit.of_nothing()
