"""The same queries in two JVMs, in another order and with others before them, have the same identities."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.queries.query_data import QuerySuite, query_suite
from tests.support.quick_jvm import QUICK_JVM

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.process, pytest.mark.integration]

ROOT = Path(__file__).parents[3]


def fingerprints(suite: QuerySuite, order: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What a driver of its own finds."""
    result = folder / f"{suite.kind}-{order}.json"
    flags = f'--conf "spark.driver.extraJavaOptions={QUICK_JVM}" pyspark-shell'
    module = "tests.spark.identity.jobs_exchanges"
    subprocess.run(
        [sys.executable, "-m", module, suite.kind, str(suite.folder), order, str(result)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": flags},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return dict(json.loads(result.read_text()))


def compare(suite: QuerySuite, folder: Path) -> tuple[int, int]:
    """Return how many shuffles have an identity that is equal in both, and how many there are."""
    one, other = (fingerprints(suite, order, folder) for order in ("forward", "backward"))
    pairs = [pair for number in one for pair in zip(one[number], other[number], strict=True)]
    assert not [first["opaque"] for first, _ in pairs if first["opaque"]]
    equal = sum(first["digest"] == second["digest"] for first, second in pairs)
    log.info("%s: %d of %d equal", suite.kind, equal, len(pairs))
    return equal, len(pairs)


@pytest.mark.walk
def test_all_shuffles_of_tpch_are_found_again(tmp_path: Path) -> None:
    """Each shuffle of its 22 queries, at every level, subqueries included."""
    equal, all_ = compare(query_suite("tpch", 0.01, tmp_path), tmp_path)
    assert all_ > 150
    assert equal == all_


@pytest.mark.walk
@pytest.mark.timeout(3600)
def test_the_shuffles_of_tpcds_are_found_again(tmp_path: Path) -> None:
    """Of its 99 queries, all but a few: what Spark itself orders by chance is safe, and computed again."""
    equal, all_ = compare(query_suite("tpcds", 0.01, tmp_path), tmp_path)
    assert all_ > 1500
    assert equal > 0.95 * all_
