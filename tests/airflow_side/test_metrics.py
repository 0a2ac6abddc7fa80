"""What a try tells monitoring: counters through Airflow's own metrics to a StatsD server, attributes of its span."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, Stats
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from airflow_provider.airflow.telemetry import PREFIX, STORE_ERRORS, metrics_of, tags_of
from airflow_provider.core import events as ev
from airflow_provider.core.report import build_report
from tests.airflow_side.executing import DRIVER, FINISHED, Make, execute
from tests.core.examples import HISTORY
from tests.support.replaying import replay

STORES = """\
writer.append(ev.VertexInitialized(epoch=claim.epoch, vertex="v", name="v", fingerprint="f", parallelism=3, layout="l",
                                   deterministic=True))
def stored(index):
    writer.append(ev.PartitionFinished(epoch=claim.epoch, vertex="v", layout="l", index=index, key=f"v/{index}",
                                       rows=5, bytes=100, checksum="", duration=1.5, attempt=claim.epoch))
"""
FIRST = STORES + "stored(0); stored(1); writer.flush(); sys.exit(137)"
SECOND = STORES + f"stored(2); {FINISHED}"


class Listener:
    """A StatsD server: what has come so far, as name (with tags) to sum."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server

    def sums(self, expected: str) -> dict[str, int]:
        """Read until a packet has *expected*, which is sent last."""
        sums: dict[str, int] = {}
        while not any(expected in name for name in sums):
            name, _, value = self._server.recv(65536).decode().partition(":")
            assert value.endswith("|c"), "all are counters"
            sums[name] = sums.get(name, 0) + int(value[:-2])
        return sums


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """A server on UDP, and Airflow configured for it as a deployment does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(20)
        for name, value in {
            "statsd_on": "True",
            "statsd_host": "127.0.0.1",
            "statsd_port": str(server.getsockname()[1]),
            "statsd_influxdb_enabled": "True",
        }.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
        Stats.initialize(factory=get_stats_factory(), export_legacy_names=True)  # as Airflow's task runner does
        try:
            yield Listener(server)
        finally:
            Stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    """Spans that have ended; OpenTelemetry has one provider per process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_the_numbers_are_those_of_the_newest_attempt() -> None:
    """Reused and computed partitions, bytes, task time, restarts and retries; what it did not reach counts nothing."""
    history = [*HISTORY[:-1], ev.JobFinished(epoch=2, at=9.0, store_retries=4)]
    history.insert(-2, ev.FailureHandled(epoch=2, vertex="b-f", error="x", restarted=("b-f",)))
    assert metrics_of(build_report("d/r/t/-1", replay(history))) == {
        "spark_recovery.attempts": 1,
        "spark_recovery.attempts_resumed": 1,
        "spark_recovery.partitions_reused": 3,
        "spark_recovery.partitions_computed": 2,
        "spark_recovery.bytes_reused": 300,
        "spark_recovery.task_milliseconds_saved": 6000,
        "spark_recovery.task_milliseconds_computed": 4000,
        "spark_recovery.task_milliseconds_storing": 1500,
        "spark_recovery.restarts": 1,
        "spark_recovery.store_retries": 4,
        "spark_recovery.store_errors": 0,
    }


def test_an_attempt_that_starts_afresh_does_not_count_as_resumed() -> None:
    """Nor does a first one, and a job without any attempt counts nothing."""
    for history, resumed in ((HISTORY[:1], 0), ([*HISTORY[:1], ev.AttemptStarted(epoch=2, fresh=True)], 0), ([], 0)):
        numbers = metrics_of(build_report("d/r/t/-1", replay(history)))
        assert (numbers[f"{PREFIX}attempts"], numbers[f"{PREFIX}attempts_resumed"]) == (int(bool(history)), resumed)


def test_the_tags_are_those_of_airflows_own_metrics() -> None:
    """Whatever characters the ids have."""
    assert tags_of("my dag/r%2F1/group.task/3") == {"dag_id": "my dag", "task_id": "group.task"}


def test_a_failed_try_and_the_one_that_resumes_it_are_counted(operator: Make, submits: Any, statsd: Listener) -> None:
    """A killed driver's partitions count as computed, and as reused in the next try; both with dag and task."""
    submits(DRIVER.format(end=FIRST))
    with pytest.raises(AirflowException):
        execute(operator())
    tagged = ",dag_id=dag,task_id=task"
    first = statsd.sums(STORE_ERRORS)
    assert {name.split(",")[0] for name in first} == {
        f"airflow.{name}" for name in metrics_of(build_report("j", replay([])))
    }
    assert first[f"airflow.spark_recovery.partitions_computed{tagged}"] == 2
    assert first[f"airflow.spark_recovery.partitions_reused{tagged}"] == 0

    submits(DRIVER.format(end=SECOND))
    execute(operator())
    second = statsd.sums(STORE_ERRORS)
    assert second[f"airflow.spark_recovery.partitions_computed{tagged}"] == 1
    assert second[f"airflow.spark_recovery.partitions_reused{tagged}"] == 2
    assert second[f"airflow.spark_recovery.bytes_reused{tagged}"] == 200
    assert second[f"airflow.spark_recovery.task_milliseconds_saved{tagged}"] == 3000
    assert second[f"airflow.spark_recovery.attempts_resumed{tagged}"] == 1


def test_a_try_whose_driver_never_began_counts_nothing_of_the_attempt_before(
    operator: Make, submits: Any, statsd: Listener
) -> None:
    """A driver that dies before it claims the job left no attempt; the one before is counted already."""
    submits(DRIVER.format(end=FIRST))
    with pytest.raises(AirflowException):
        execute(operator())
    submits("raise SystemExit(137)")
    with pytest.raises(AirflowException):
        execute(operator())
    Stats.incr("end")
    sums = statsd.sums("airflow.end")
    assert sums["airflow.spark_recovery.attempts,dag_id=dag,task_id=task"] == 1


def test_a_success_that_the_store_does_not_tell_is_a_store_error(
    operator: Make, submits: Any, statsd: Listener, tmp_path: Path
) -> None:
    """Not recorded, or not readable at all."""
    submits(DRIVER.format(end=""))
    execute(operator())
    assert statsd.sums(STORE_ERRORS)[f"airflow.{STORE_ERRORS},dag_id=dag,task_id=task"] == 1

    store = tmp_path / "store"
    lost = f"import pathlib; folder = pathlib.Path({str(store)!r}); folder.rename({str(tmp_path / 'away')!r})"
    submits(DRIVER.format(end=f"{lost}; folder.symlink_to(folder)"))
    assert execute(operator()) is None
    assert statsd.sums(STORE_ERRORS) == {f"airflow.{STORE_ERRORS},dag_id=dag,task_id=task": 1}


def test_the_tasks_span_has_the_same_numbers(operator: Make, submits: Any, spans: InMemorySpanExporter) -> None:
    """As attributes of the span that is current while the task executes."""
    submits(DRIVER.format(end=SECOND))
    with trace.get_tracer("test").start_as_current_span("worker.task"):
        execute(operator())
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["spark_recovery.partitions_computed"] == 1
    assert set(span.attributes) == set(metrics_of(build_report("j", replay([]))))


def test_monitoring_that_fails_harms_no_task(operator: Make, submits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that raises, and a span that does."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise OSError("monitoring is gone")

    Stats.initialize(factory=Broken, export_legacy_names=True)  # type: ignore[arg-type]
    monkeypatch.setattr(trace, "get_current_span", Broken)
    try:
        submits(DRIVER.format(end=FINISHED))
        assert execute(operator())["state"] == "FINISHED"
    finally:
        Stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


def test_the_document_lists_every_metric_with_the_code_s_names() -> None:
    """docs/metrics.md names each, and none that is not sent."""
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    listed = re.findall(r"^\| `(spark_recovery\.\w+)` \|", text, re.MULTILINE)
    assert listed == list(metrics_of(build_report("j", replay([]))))
