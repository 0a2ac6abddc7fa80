"""Vertices whose tasks fail as often as a test wants, and what is stored of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext


class Task:
    """A function for ``mapInPandas`` that notes each run and fails so many times in one partition.

    :param fails_in: index of that partition
    :param error: what it fails with: class and text
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        failures: int = 0,
        fails_in: int = 1,
        error: str = "RuntimeError: by chance",
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.runs, self.left = folder / f"{name}-runs", folder / f"{name}-left"
        self.left.write_text("x" * failures)
        self.fails_in, self.error = fails_in, error

    def apply(self, df: DataFrame, factor: int) -> DataFrame:
        runs, left, fails_in, error = str(self.runs), str(self.left), self.fails_in, self.error

        def task(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            import os
            from pathlib import Path

            from pyspark import TaskContext

            from airflow_provider.core.failure import UnrecoverableError

            index = TaskContext.get().partitionId()  # type: ignore[union-attr]
            with Path(runs).open("a") as file:
                file.write(f"{index}\n")
            if index == fails_in and (failures := os.path.getsize(left)):
                os.truncate(left, failures - 1)
                kind, _, text = error.partition(": ")
                kinds = {"UnrecoverableError": UnrecoverableError, "NameError": NameError, "RuntimeError": RuntimeError}
                raise kinds[kind](text)
            for frame in frames:
                yield frame.assign(id=frame["id"] * factor)

        return df.mapInPandas(task, "id long")

    def count(self) -> dict[str, int]:
        """How often each partition has run."""
        return dict(Counter(self.runs.read_text().split()))


def ids(df: DataFrame) -> list[int]:
    return sorted(row.id for row in df.collect())


def stored(context: RecoveryContext, name: str) -> list[Path]:
    """The objects of a vertex, by index."""
    [vertex] = [v for v in context.master.graph.vertices.values() if v.initialized.name == name]
    root = Path(context.master.store.uri.removeprefix("file://")) / context.master.prefix
    return [root / record.key for _, record in sorted(vertex.partitions.items())]
