"""Attempts at a job inside this process: quick to start, so that many small claims can be tested in one session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.report import JobReport, VertexReport, build_report
from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.job_master import JobMaster
from airflow_provider.spark.context import RecoveryContext, recovering
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.points.reading import hadoop_root
from airflow_provider.spark.runner import recovered
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import open_store
from tests.support.stores import WatchedStore


@dataclass
class Attempts:
    """Attempts at one job in one event store.

    :ivar options: recovery options, as text
    :ivar fresh: why the next attempts reuse nothing; empty if they resume
    :ivar run: tells the next attempts' DAG run from others of its name
    :ivar series: the same for attempts that are automatic retries of each other
    :ivar before: what the store does before an operation with a key; it may raise
    """

    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    fresh: str = ""
    run: str = ""
    series: str = "retried"
    before: Callable[[str, str], None] | None = None

    def request(self) -> RunRequest:
        return RunRequest(
            event_store=f"file://{self.folder}",
            job=JobId(("dag", "run", "task", "-1")),
            application="script.py",
            options=RecoveryOptions.from_mapping({"write_buffer_flush_interval": 0.05, **self.options}),
            supervised=True,
            fresh=self.fresh,
            run=self.run,
            series=self.series,
            previous_lost=10**6,
        )

    def report(self) -> JobReport:
        """What the event store tells of the job."""
        request = self.request()
        return build_report("job", inspect_job(open_store(request.event_store, request.storage), request.job))

    @contextmanager
    def attempt(self) -> Iterator[RecoveryContext]:
        """An attempt that ends without having finished the job, so that the next one resumes it."""
        with self._claimed() as context, recovering(context), intercepted(context.notes()):
            yield context

    @contextmanager
    def writes(self, *, succeeds: bool = False) -> Iterator[tuple[RecoveryContext, OutputAttempt]]:
        """Such an attempt, in which outputs are looked at; at its end, too, if its script succeeds."""
        with self.attempt() as context:
            output = OutputAttempt(context.master)
            sinks = SinksOnce(context, output)
            with intercepted(sinks.stages(), output.stages()):
                yield context, output
            if succeeds:
                sinks.unmet()

    @contextmanager
    def script(self) -> Iterator[RecoveryContext]:
        """Such an attempt, in which calls pass all that those of a script pass, with a watching thread in auto mode."""
        with self._claimed() as context, recovered(context):
            yield context

    @contextmanager
    def _claimed(self) -> Iterator[RecoveryContext]:
        request = self.request()
        store = open_store(request.event_store, request.storage)
        if self.before is not None:
            store = WatchedStore(store, self.before)
        master = JobMaster(request, store, on_fenced=lambda _: None)
        assert master.start()
        try:
            yield RecoveryContext(master, hadoop_root(store.uri))
        finally:
            master.failed("the test ends the attempt here")


@contextmanager
def dying() -> Iterator[None]:
    """Writes inside end as if their driver were killed behind Spark's commit, before it could record that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SinksOnce, "_returned", lambda *_: None)
        yield


def vertices(context: RecoveryContext) -> dict[str, VertexReport]:
    """What the attempt would report of each vertex, by name."""
    report = build_report("job", context.master.graph)
    return {vertex.name: vertex for vertex in report.vertices if vertex.reached}
