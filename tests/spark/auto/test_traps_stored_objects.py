"""What is stored is whole and true, or it is computed again: trap 7, damage, and drivers that end while they store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.job.job_master import JobMaster
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker
from airflow_provider.spark.jvm.reflection import of_environment
from airflow_provider.spark.local_dirs import LocalDirs
from airflow_provider.spark.shuffles.map_output import MapOutput
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt, shuffle_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

BLOCKS = ".blocks"


def by_customer(spark: SparkSession, orders: Path) -> DataFrame:
    return spark.read.parquet(str(orders)).groupBy("customer").sum("amount")


def replaced(path: Path, content: bytes) -> None:
    """Another file of this name: the old one may be Spark's own, too."""
    path.unlink()
    path.write_bytes(content)


def swapped(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    replaced(one, second)
    replaced(other, first)


def removed(*paths: Path) -> None:
    for path in paths:
        path.unlink()


HARMS: dict[str, Callable[[list[Path], list[Path]], None]] = {
    "description missing": lambda descriptions, blocks: descriptions[0].unlink(),
    "description cut": lambda descriptions, blocks: replaced(descriptions[0], descriptions[0].read_bytes()[:-1]),
    "description empty": lambda descriptions, blocks: replaced(descriptions[0], b""),
    "description flipped": lambda descriptions, blocks: replaced(
        descriptions[0], descriptions[0].read_bytes()[:-1] + b"?"
    ),
    "descriptions swapped": lambda descriptions, blocks: swapped(*descriptions),
    "blocks missing": lambda descriptions, blocks: blocks[0].unlink(),
    "blocks cut": lambda descriptions, blocks: replaced(blocks[0], blocks[0].read_bytes()[:-1]),
    "blocks too long": lambda descriptions, blocks: replaced(blocks[0], blocks[0].read_bytes() + b"?"),
    "blocks flipped": lambda descriptions, blocks: replaced(
        blocks[0], bytes([blocks[0].read_bytes()[0] ^ 1]) + blocks[0].read_bytes()[1:]
    ),
    "blocks swapped": lambda descriptions, blocks: swapped(*blocks),
    "everything missing": lambda descriptions, blocks: removed(*descriptions, *blocks),
}
HARM_ALL = {"descriptions swapped", "blocks swapped", "everything missing"}
SHUFFLE = "shuffle(customer)"
SECRET = "5ea1" * 16
DIFFERENT_HARMS = {"description flipped", "blocks cut", "blocks flipped", "blocks swapped"}


def kept(spark: SparkSession, orders: Path, attempts: Attempts) -> tuple[list[Row], list[Path], list[Path]]:
    """An attempt that keeps the shuffle of a query; its rows, and the descriptions and blocks in the store."""
    with auto_attempt(attempts, spark) as first:
        df = by_customer(spark, orders)
        rows = sorted(df.collect())
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # a map output's name has the rows that it tells
        assert first.keep(df)
        files = first.stored_files()
    blocks = [path for path in files if path.name.endswith(BLOCKS)]
    return rows, [path for path in files if path not in blocks], blocks


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("harm", "secret"),
    [
        *((harm, "") for harm in HARMS),
        *(
            pytest.param(harm, SECRET, marks=() if harm in DIFFERENT_HARMS else pytest.mark.integration)
            for harm in HARMS
        ),
    ],
)
def test_a_harmed_object_is_computed_again(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, harm: str, secret: str
) -> None:
    """Whatever was done to a stored map output, the rows are right; the one that is sound need not run again. With a
    secret each object is verified before a byte of it lies where Spark reads.

    A description that is missing beside its blocks is what a driver leaves that ends between the two.
    """
    monkeypatch.setenv(INTEGRITY_SECRET, secret)
    rows, descriptions, blocks = kept(spark, orders, attempts)
    assert len(descriptions) == len(blocks) == 2
    HARMS[harm](descriptions, blocks)
    with auto_attempt(attempts, spark) as second:
        assert sorted(by_customer(spark, orders).collect()) == rows
        assert second.put_back() == ({} if harm in HARM_ALL else {SHUFFLE: 1})
    with auto_attempt(attempts, spark):
        assert sorted(by_customer(spark, orders).collect()) == rows


def forge(descriptions: list[Path], blocks: list[Path]) -> None:
    """Put one map output in the place of the other, under a name that its own bytes agree with."""
    index, _, rest = descriptions[0].name.partition("-of-")
    told = descriptions[1].name.partition("-of-")[2]
    assert rest != told
    name = f"{index}-of-{told}"
    content, rows = descriptions[1].read_bytes(), blocks[1].read_bytes()
    for path in (descriptions[0], blocks[0]):
        path.unlink()
    (descriptions[0].parent / name).write_bytes(content)
    (descriptions[0].parent / f"{name}{BLOCKS}").write_bytes(rows)


@pytest.mark.few(1)
@pytest.mark.parametrize("secret", ["", SECRET], ids=["plain", "sealed"])
def test_only_a_seal_tells_a_forgery(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """A whole map output under another one's name has right checksums: without a secret its rows are believed."""
    monkeypatch.setenv(INTEGRITY_SECRET, secret)
    rows, descriptions, blocks = kept(spark, orders, attempts)
    forge(descriptions, blocks)
    with auto_attempt(attempts, spark) as second:
        assert (sorted(by_customer(spark, orders).collect()) == rows) == bool(secret)
        assert second.put_back() == {SHUFFLE: 1 if secret else 2}


@pytest.mark.few(1)
@pytest.mark.parametrize("forgotten", ["remember", "vertex_finished", "partition_finished"])
def test_a_driver_may_end_before_any_of_its_events(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    """Objects that are stored but of which an event is lost give the right rows: put back, or computed again."""
    with auto_attempt(attempts, spark) as first:
        df = by_customer(spark, orders)
        rows = sorted(df.collect())
        with monkeypatch.context() as patch:
            patch.setattr(JobMaster, forgotten, lambda self, *_: True)
            first.keep(df)
        assert len(first.stored_files()) == 4
    with auto_attempt(attempts, spark) as second:
        assert sorted(by_customer(spark, orders).collect()) == rows
        assert second.put_back() == {SHUFFLE: 2}


@pytest.mark.few(1)
@pytest.mark.parametrize("missing", ["index", "data"])
def test_a_file_that_is_missing_is_not_an_empty_map_output(
    spark: SparkSession, orders: Path, attempts: Attempts, missing: str
) -> None:
    """A map output without its index, or without the data that the index speaks of, is not stored at all."""
    with auto_attempt(attempts, spark) as first:
        df = by_customer(spark, orders)
        rows = sorted(df.collect())
        (number,) = shuffle_numbers(spark, df)
        manager = of_environment(spark, "blockManager", "org.apache.spark.storage.BlockManager")
        dirs = LocalDirs(tuple(str(path) for path in manager.diskBlockManager().localDirsString()))
        status = next(MapOutputTracker(spark).statuses(number))
        dirs.file(getattr(MapOutput(number, status.task), missing)).unlink()
        assert first.keep(df) == []
        assert len(first.stored_files()) == 2  # description and blocks of the other
    with auto_attempt(attempts, spark) as second:
        assert sorted(by_customer(spark, orders).collect()) == rows
        assert second.put_back() == {SHUFFLE: 1}


def test_a_store_that_is_gone_leaves_the_query_as_it_was(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """All objects vanish after the attempt has listed them: the query runs as it would have."""
    with auto_attempt(attempts, spark) as first:
        df = by_customer(spark, orders)
        rows = sorted(df.collect())
        assert first.keep(df)
        folder = first.stored_files()[0].parent
    with auto_attempt(attempts, spark) as second:
        assert second.wanted
        shutil.rmtree(folder)
        assert sorted(by_customer(spark, orders).collect()) == rows
        assert second.put_back() == {}
