"""Queries that differ in one thing never share an identity: a short hunt here, the long one with ``--walk``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.identity.hunt import Haul, documented_queries, hunt_functions, hunt_orders, hunt_queries, tables
from tests.support.parameters import thinned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SEED = int(os.environ.get("SPARK_RECOVERY_SEED", "16"))


@pytest.fixture(autouse=True)
def quiet(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    log.setLevel(logging.INFO)
    spark.sparkContext.setLogLevel("OFF")
    tables(spark, str(tmp_path))
    yield
    spark.sparkContext.setLogLevel("ERROR")


def check(haul: Haul, least: int) -> None:
    log.info(
        "%d pairs of %d queries, %d functions, %d queries without identity, %d synonyms, %d collisions",
        haul.pairs,
        haul.examined,
        len(haul.functions),
        haul.opaque,
        len(haul.synonyms),
        len(haul.collisions),
    )
    assert haul.collisions == []
    assert haul.pairs >= least


@pytest.mark.parametrize("physical", thinned([False, True], 2))
def test_changed_literals_of_functions(spark: SparkSession, physical: bool) -> None:
    """Of every fiftieth documented example of Spark's functions, each literal counts."""
    check(hunt_functions(spark, SEED, 0.02, physical=physical), 200)


@pytest.mark.parametrize("physical", [False, True])
def test_changed_parts_of_queries(spark: SparkSession, physical: bool) -> None:
    """Joins, aggregates, filters, groupings and hints that differ make another identity."""
    check(hunt_queries(spark, SEED, 15, physical=physical), 60)


@pytest.mark.parametrize("physical", thinned([False, True], 2))
def test_orders_of_aggregates(spark: SparkSession, physical: bool) -> None:
    """Which of several aggregates a column is makes another identity, also where Spark numbers their results."""
    check(hunt_orders(spark, SEED, 3, physical=physical), 300)


@pytest.mark.walk
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("physical", [False, True])
def test_the_long_hunt(spark: SparkSession, physical: bool) -> None:
    """More than ten thousand pairs, among them every function whose documentation has an example with a literal."""
    functions = hunt_functions(spark, SEED, 1, physical=physical)
    check(functions, 5_000)
    check(hunt_queries(spark, SEED, 600, physical=physical), 5_000)
    check(hunt_orders(spark, SEED, 100, physical=physical), 10_000)
    if not physical:
        assert len(functions.functions) > 0.7 * len({name for name, _ in documented_queries(spark)})
