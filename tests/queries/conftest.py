"""Data for the queries, made once for all tests of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.queries.query_data import QuerySuite, query_suite

SMALL = 0.01
"""Scale factor in each run of the tests."""
WALKED = float(os.environ.get("SPARK_RECOVERY_WALK_SCALE", "1"))
"""Scale factor in the full walk."""


@pytest.fixture(scope="session")
def query_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("query-data")


@pytest.fixture(scope="session")
def tpch(query_data: Path) -> QuerySuite:
    """TPC-H, small."""
    return query_suite("tpch", SMALL, query_data)


@pytest.fixture(scope="session")
def tpch_walked(query_data: Path) -> QuerySuite:
    """TPC-H as the full walk takes it."""
    return query_suite("tpch", WALKED, query_data, parts=8)


@pytest.fixture(scope="session")
def tpcds_walked(query_data: Path) -> QuerySuite:
    """TPC-DS as the full walk takes it."""
    return query_suite("tpcds", WALKED, query_data, parts=4)
