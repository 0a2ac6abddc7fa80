"""Blocks of the event store that are lost cost what they held: what is known is not done again, what may be is said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider.core.committed_output import doubts
from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.spark import step
from airflow_provider.spark.context import RecoveryContext
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from airflow_provider.storage.event_log import JobEventLog
from tests.spark.attempts import Attempts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

AGAIN = "is lost, which may have told that an earlier attempt has written it"


class Job:
    """A script that runs a step and appends twice, in one process."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.target, self.store = spark, folder / "out", folder / "store"
        self.attempts = Attempts(self.store)
        self.steps = 0

    def run(self) -> list[str]:
        """Run it; returns which rows are said to be there twice, perhaps."""
        with self.attempts.attempt() as context:
            sinks = SinksOnce(context, output := OutputAttempt(context.master))
            with intercepted(sinks.stages()):
                output.prepare(self.spark)
                step("once", self.count, version="1")
                self.append(5)
                self.between = self.blocks(context)
                self.append(7)
                self.behind = self.blocks(context)
                return doubts(context.master.graph.coordinators)

    def count(self) -> int:
        self.steps += 1
        return self.steps

    def append(self, rows: int) -> None:
        self.spark.range(rows).coalesce(1).write.mode("append").parquet(str(self.target))

    def blocks(self, context: RecoveryContext) -> list[int]:
        return JobEventLog(context.master.store, context.master.prefix).numbers()

    def damage(self, blocks: list[int]) -> None:
        for block in blocks:
            [file] = self.store.rglob(f"events/{block:010d}.jsonl")
            file.chmod(0o644)
            file.write_bytes(b"rubbish")

    @property
    def rows(self) -> int:
        return self.spark.read.parquet(str(self.target)).count()


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def test_what_is_known_is_not_done_again(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    """Lost is all that an append has recorded: it is made again, and said to be. The step and the append before it are
    not, and a third attempt makes neither.
    """
    job.run()
    job.damage(job.behind[len(job.between) :])
    said = job.run()
    assert [AGAIN in doubt for doubt in said] == [True]
    assert AGAIN in caplog.text
    assert (job.steps, job.rows) == (1, 5 + 7 + 7)
    job.run()
    assert (job.steps, job.rows) == (1, 5 + 7 + 7)


def test_a_write_whose_end_alone_is_lost_is_taken_back(job: Job) -> None:
    """Its beginning tells which files are its own: its rows are there once, and nothing is in doubt."""
    job.run()
    job.damage(job.behind[-1:])
    assert job.run() == []
    assert (job.steps, job.rows) == (1, 5 + 7)


def test_rows_may_not_be_there_twice(job: Job) -> None:
    """Where the options say that no write may be repeated the attempt fails, and nothing is written."""
    job.run()
    job.damage(job.behind[len(job.between) :])
    job.attempts.options["unknown_sinks"] = "fail"
    with pytest.raises(UnrecoverableError, match="Writing it again may duplicate rows"):
        job.run()
    assert job.rows == 5 + 7


def test_a_fresh_start_says_what_it_does_not_know(job: Job) -> None:
    """It takes back the rows of which it knows, and adds them again; of the others it says that there may be more."""
    job.run()
    job.damage(job.behind[len(job.between) :])
    job.attempts.fresh = "cleared"
    assert len(job.run()) == 2
    assert (job.steps, job.rows) == (2, 5 + 7 + 7)
