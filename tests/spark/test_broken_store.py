"""When the store fails while a job runs: for a moment, that costs nothing; for good, the job fails at its write."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider.core.run_request import EXIT_FAILED
from airflow_provider.storage.s3_retry import RetryPolicy
from tests.spark.killed_jobs import expected, result
from tests.support.driver import DriverHarness, Outcome
from tests.support.http_faults import Answer, Drop, Fault, FaultyServer, Request
from tests.support.s3_gateway import S3Server

pytestmark = [pytest.mark.process, pytest.mark.integration]

LEASE = {"previous-worker-recovery-timeout": "6s", "ownership-timeout": "3s"}


def is_partition(request: Request, vertex: str = "") -> bool:
    """Whether a partition (of *vertex*) is stored with this request."""
    return request.method == "PUT" and f"/partitions/{vertex}" in request.path


def gone_after(condition: Callable[[Request], bool]) -> Callable[[Request], Fault]:
    """The store is lost from the first request on that fits."""
    gone = False

    def fault(request: Request) -> Fault:
        nonlocal gone
        gone = gone or condition(request)
        return Drop() if gone else None

    return fault


@dataclass
class BreakingStore:
    server: FaultyServer
    driver: DriverHarness
    seconds: float = 0.0

    @property
    def out(self) -> Path:
        return self.driver.folder / "out"

    def run(self, orders: Path, *arguments: str) -> Outcome:
        began = time.monotonic()
        outcome = self.driver.run("two_vertices.py", str(orders), str(self.out), *arguments, options=LEASE)
        self.seconds = time.monotonic() - began
        return outcome


@pytest.fixture
def breaking(driver: DriverHarness, moto: S3Server) -> Iterator[BreakingStore]:
    with FaultyServer(moto.endpoint).running() as server:
        driver.event_store = f"s3://{moto.create_bucket('broken-store')}/{uuid.uuid4().hex}"
        driver.storage = {"endpoint-url": server.endpoint, "addressing-style": "path"}
        driver.environment = moto.environment
        yield BreakingStore(server, driver)


def failed_at_its_write(breaking: BreakingStore, outcome: Outcome) -> None:
    """One line says why, and nothing was written."""
    assert outcome.code == EXIT_FAILED, outcome.log
    (line,) = [line for line in outcome.log.splitlines() if " ERROR spark-recovery: " in line]
    assert "Attempt 1 cannot confirm that it owns job" in line
    assert not breaking.out.exists()


@pytest.mark.walk
def test_the_store_is_away_for_a_moment(breaking: BreakingStore, orders: Path) -> None:
    """Partitions that cannot be stored are stored by the next try of their tasks, events wait: the vertex is whole, the
    job ends as ever, and all of it is recorded.
    """
    refused: list[str] = []
    most = {"partition": 2 * RetryPolicy().attempts, "events": RetryPolicy().attempts}

    def for_a_moment(request: Request) -> Fault:
        kind = "partition" if is_partition(request) else "events" if "/events/" in request.path else ""
        if request.method != "PUT" or not kind or (kind == "events" and "partition" not in refused):
            return None
        if refused.count(kind) >= most[kind]:
            return None
        refused.append(kind)
        return Answer(503, "SlowDown")

    breaking.server.fault = for_a_moment
    breaking.driver.settings = {**breaking.driver.settings, "spark.master": "local[2, 4]"}
    outcome = breaking.run(orders)
    assert outcome.code == 0, outcome.log
    assert {kind: refused.count(kind) for kind in most} == most
    assert result(breaking.out) == expected(orders)
    assert "is not stored" not in outcome.log
    assert "Cannot write to the event store" in outcome.log
    assert "The event store answers again after" in outcome.log
    assert "Attempt 1: FINISHED" in outcome.log


@pytest.mark.walk
def test_the_store_is_gone_in_the_middle_of_a_vertex(breaking: BreakingStore, orders: Path) -> None:
    """No answer any more from the third partition on: all is computed; the write waits and fails with a clear line."""
    puts = 0

    def third(request: Request) -> bool:
        nonlocal puts
        puts += is_partition(request)
        return puts > 2

    breaking.server.fault = gone_after(third)
    outcome = breaking.run(orders)
    assert "WARNING spark-recovery: checkpoint 'totals' is not stored" in outcome.log
    failed_at_its_write(breaking, outcome)
    assert breaking.seconds < 120, outcome.log


def test_the_store_is_gone_after_the_first_vertex(breaking: BreakingStore, orders: Path) -> None:
    """What was stored cannot be read back any more: the attempt ends with a line that says so, and writes nothing."""
    breaking.server.fault = gone_after(lambda request: is_partition(request, "graded-"))
    outcome = breaking.run(orders, "count")
    assert outcome.code == EXIT_FAILED, outcome.log
    assert "ERROR spark-recovery: The event store does not answer" in outcome.log
    assert "a retry goes on from there when the store answers" in outcome.log
    assert not breaking.out.exists()
    assert breaking.seconds < 175, outcome.log


@pytest.mark.walk
def test_the_store_refuses_the_executors(breaking: BreakingStore, orders: Path) -> None:
    """Where executors may not write, checkpoints are computed the ordinary way; the events go on."""
    breaking.server.fault = lambda request: Answer(403, "AccessDenied") if is_partition(request) else None
    outcome = breaking.run(orders)
    assert outcome.code == 0, outcome.log
    assert result(breaking.driver.folder / "out") == expected(orders)
    warnings = [line for line in outcome.log.splitlines() if " WARNING spark-recovery: " in line]
    assert len(warnings) == 2, outcome.log
    assert all("is not stored" in line and "s3:PutObject" in line for line in warnings)
    assert "FINISHED" in outcome.log
    assert breaking.seconds < 90, outcome.log
