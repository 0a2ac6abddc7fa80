"""A query of two levels that notes what of it runs, and whose last tasks fail as often as a test wants."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.context import RecoveryContext

QUICK = {
    "restart_strategy_fixed_delay_delay": "10 ms",
    "restart_strategy_failure_rate_delay": "10 ms",
    "restart_strategy_exponential_delay_initial_backoff": "10 ms",
}
"""Options with which no time is lost between a failure and the restart."""
KEEP_ALL = {"recovery_points": "auto", "overhead_budget": "1e9"}
"""Options with which every shuffle is worth its cost."""
STRATEGIES: dict[str, tuple[dict[str, str], int]] = {
    "none": ({}, 0),
    "fixed-delay": ({"restart_strategy_fixed_delay_attempts": "2"}, 2),
    "failure-rate": ({}, 1),
    "exponential-delay": ({"restart_strategy_exponential_delay_attempts_before_reset_backoff": "3"}, 3),
}
"""Each restart strategy, with options, and how many restarts it allows then."""
FAILOVERS = ("region", "full")
ROWS = [(key, 20) for key in range(5)]
"""What the query returns."""


@dataclass(frozen=True)
class FailingQuery:
    """The query.

    :ivar folder: where tasks note that they run, and find out whether they are to fail
    :ivar kept: a folder; the last tasks wait until so many map outputs are in it as :meth:`fails` says
    :ivar error: what they fail with: class and text, or ``SIGKILL``, which ends their executor
    """

    folder: Path
    kept: Path | None = None
    error: str = "RuntimeError: by chance"

    def fails(self, times: int, waiting_for: int = 2) -> FailingQuery:
        """Let the last tasks fail so many times from now on, those that do not fail wait for nothing.

        :param waiting_for: so many map outputs are stored before; also before one that does not fail, if it is negative
        """
        self.folder.mkdir(exist_ok=True)
        (self.folder / "left").write_text("x" * times)
        (self.folder / "stored").write_text(str(waiting_for))
        return self

    def of(self, df: DataFrame) -> DataFrame:
        """Return the query over the rows of *df*, 100 of them in two partitions: their ``id`` modulo 5, counted."""
        folder = str(self.folder)

        def below(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            _note(folder, "map")
            for frame in frames:
                yield frame.assign(key=frame["id"] % 5)[["key"]]

        return self.above(df.mapInPandas(below, "key long").groupBy("key").count())

    def above(self, df: DataFrame) -> DataFrame:
        """Return the rows of *df*, through a task that fails."""
        folder, kept, error = str(self.folder), str(self.kept or ""), self.error

        def last(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            import time

            _note(folder, "reduce")
            yield from frames
            left, wanted = Path(folder, "left"), int(Path(folder, "stored").read_text())
            failures = left.read_text()
            until = time.monotonic() + 120
            while kept and (failures or wanted < 0) and _stored(kept) < abs(wanted):
                if time.monotonic() > until:
                    raise TimeoutError(f"only {_stored(kept)} map outputs are kept")
                time.sleep(0.05)
            if failures:
                left.write_text(failures[1:])
                kind, _, text = error.partition(": ")
                if kind == "SIGKILL":
                    _end_executor(kept)
                raise {"RuntimeError": RuntimeError, "NameError": NameError}[kind](text)

        return df.coalesce(1).mapInPandas(last, df.schema)

    def ran(self, level: str) -> dict[int, int]:
        """How often each task of a level has run, ``map`` or ``reduce``."""
        file = self.folder / level
        return dict(sorted(Counter(map(int, file.read_text().split())).items())) if file.exists() else {}


def _note(folder: str, level: str) -> None:
    from pyspark import TaskContext

    with Path(folder, level).open("a") as file:
        file.write(f"{TaskContext.get().partitionId()}\n")  # type: ignore[union-attr]


def _end_executor(kept: str) -> None:
    """End the executor that this task runs on, when the shuffle below is recorded as a whole: what copies it runs
    there, too. Python workers are forked by a daemon, whose parent the executor is.
    """
    import signal
    import time

    while not any('"VertexFinished"' in file.read_text() for file in Path(kept).rglob("*.jsonl")):
        time.sleep(0.05)
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    os.kill(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), signal.SIGKILL)
    time.sleep(60)


def _stored(folder: str) -> int:
    """How many map outputs are below a folder, in which others come and go."""
    return sum(name.endswith(".shuffle") for _, _, names in os.walk(folder) for name in names)


def hundred(spark: SparkSession) -> DataFrame:
    """Rows for the query."""
    return spark.range(0, 100, 1, 2)


def rows(df: DataFrame) -> list[tuple[int, int]]:
    """Rows of the query, in order."""
    return sorted((int(row["key"]), int(row["count"])) for row in df.collect())


def restarts(context: RecoveryContext) -> int:
    """How often something was restarted in an attempt."""
    newest = context.master.graph.newest
    assert newest is not None
    return newest.restarts


def of_strategy(strategy: str, failover: str) -> dict[str, str]:
    """Return the options of an attempt with this restart strategy and this failover strategy."""
    return {**STRATEGIES[strategy][0], "restart_strategy": strategy, "failover_strategy": failover}


def forget_accumulators() -> None:
    """Let the script that is to run have none."""
    from pyspark.accumulators import _accumulatorRegistry

    for number in [number for number in _accumulatorRegistry if number >= 0]:
        del _accumulatorRegistry[number]
