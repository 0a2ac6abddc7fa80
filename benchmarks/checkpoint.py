"""``checkpoint(df, name)`` against Spark's ``df.checkpoint()`` and against a Parquet write that is read back.

The input is TPC-H's ``lineitem``, all columns, straight from its files: nothing is computed that could hide the cost of
storing. Each way is followed by the same aggregate over what it returned. One Spark session, one warm-up of each way,
then rounds in rotating order; the median counts.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.job_master import JobMaster
from airflow_provider.spark import checkpoint
from airflow_provider.spark.context import RecoveryContext, recovering
from airflow_provider.spark.points.reading import hadoop_root
from airflow_provider.storage.files import file_uri
from airflow_provider.storage.uris import open_store
from benchmarks.measure import Cost, Meter, bytes_below, descendants
from tests.support.s3_gateway import missing_programs, s3_gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REFERENCE = "df.checkpoint()"
Way = Callable[["DataFrame"], tuple["DataFrame", Callable[[], int]]]
"""Makes a DataFrame's rows permanent; returns one that reads them, and what says how many bytes are stored."""


@dataclass
class Ways:
    """The ways to make a DataFrame's rows permanent."""

    spark: SparkSession
    folder: Path

    def spark_checkpoint(self, df: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
        """Spark's own reliable checkpoint."""
        return df.checkpoint(), lambda: bytes_below(self.folder / "spark-checkpoints")

    def parquet(self, df: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
        """What people write by hand."""
        target = self.folder / f"parquet-{uuid.uuid4().hex}"
        df.write.parquet(str(target))
        return self.spark.read.parquet(str(target)), lambda: bytes_below(target)

    def recovery(self, event_store: str, options: StorageOptions) -> Way:
        """Return the way that is under test, each call an attempt at a job of its own."""

        def way(df: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
            request = RunRequest(event_store, JobId((uuid.uuid4().hex,)), "benchmark", storage=options)
            store = open_store(event_store, options)
            master = JobMaster(request, store, on_fenced=lambda _: None)
            master.start()
            context = RecoveryContext(master, hadoop_root(store.uri))
            with recovering(context):
                kept = checkpoint(df, "lineitem")

            def finish() -> int:
                size = sum(p.bytes for record in context.done.values() for p in record.values())
                assert size, "nothing was stored"
                master.finished()
                return size

            return kept, finish

        return way


def aggregate(df: DataFrame) -> list[Any]:
    """What is asked of the result: TPC-H's query 1, without its filter."""
    from pyspark.sql import functions as F

    return (
        df.groupBy("l_returnflag", "l_linestatus")
        .agg(
            F.sum("l_quantity"),
            F.sum("l_extendedprice"),
            F.sum(F.col("l_extendedprice") * (1 - F.col("l_discount"))),
            F.avg("l_discount"),
            F.count("*"),
        )
        .orderBy("l_returnflag", "l_linestatus")
        .collect()
    )


def compare(data: Path, rounds: int) -> dict[str, Any]:
    """Run the comparison and return medians, ratios and all single figures."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name, _s3() as (s3, server_processes):
        folder = Path(name)
        spark = _session(folder)
        ways = Ways(spark, folder)
        runs: dict[str, Way] = {
            REFERENCE: ways.spark_checkpoint,
            "checkpoint(df, name), file store": ways.recovery(file_uri(folder / "store"), StorageOptions()),
            "Parquet write + read": ways.parquet,
        }
        if s3 is not None:
            runs["checkpoint(df, name), S3 (Ceph)"] = ways.recovery(*s3)
        source = spark.read.parquet(str(data / "lineitem"))
        costs = measured(runs, source, rounds, lambda: _clear(folder), server_processes)
        spark.stop()
    return summary(costs, rounds)


def measured(
    runs: Mapping[str, Way], source: DataFrame, rounds: int, clear: Callable[[], object], without: Iterable[int] = ()
) -> dict[str, list[Cost]]:
    """Run all ways in turn, in another order in each round; the first round warms up and does not count.

    :param clear: called behind each way
    :param without: processes that do not count
    """
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    answers = []
    names = list(runs)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            meter = Meter(without)
            kept, finish = runs[name](source)
            answers.append(aggregate(kept))
            cost = meter.read()
            stored = finish()
            if number:
                costs[name].append(Cost(cost.wall, cost.cpu, stored))
            print(f"  round {number}: {name}: {cost.wall:.2f} s", file=sys.stderr, flush=True)
            clear()
    assert all(answer == answers[0] for answer in answers), "the ways gave different answers"
    return costs


def _clear(folder: Path) -> None:
    for child in folder.iterdir():
        if child.name == "spark-checkpoints":
            for application in child.iterdir():
                for stored in application.iterdir():
                    shutil.rmtree(stored)
        elif child.name != "spark-local":
            shutil.rmtree(child)


def _session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{len(os.sched_getaffinity(0))}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.local.dir", str(folder / "spark-local"))
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.setCheckpointDir(str(folder / "spark-checkpoints"))
    return spark


@contextmanager
def _s3() -> Iterator[tuple[tuple[str, StorageOptions] | None, list[int]]]:
    """A real S3 server on loopback, if its programs are installed; its processes do not count."""
    if missing_programs():
        print("  Ceph's gateway is not installed: no figures for S3", file=sys.stderr)
        yield None, []
        return
    with s3_gateway(memory_gib=8) as server:
        os.environ.update(server.environment)
        bucket = server.create_bucket("benchmark")
        options = StorageOptions(endpoint_url=server.endpoint, addressing_style="path")
        yield (f"s3://{bucket}/store", options), descendants(os.getpid())[1:]


def summary(costs: dict[str, list[Cost]], rounds: int) -> dict[str, Any]:
    """Return medians, ratios to the reference and all single figures."""

    def median(name: str, what: str) -> float:
        middle: float = statistics.median(getattr(cost, what) for cost in costs[name])
        return middle

    return {
        "input": "TPC-H scale 1, lineitem, 16 columns, 6,001,215 rows, 8 files",
        "rounds": rounds,
        "ways": {
            name: {
                "wall_seconds": round(median(name, "wall"), 2),
                "cpu_seconds": round(median(name, "cpu"), 2),
                "mebibytes": round(median(name, "bytes") / 2**20, 1),
                "wall_ratio": round(median(name, "wall") / median(REFERENCE, "wall"), 2),
                "cpu_ratio": round(median(name, "cpu") / median(REFERENCE, "cpu"), 2),
                "bytes_ratio": round(median(name, "bytes") / median(REFERENCE, "bytes"), 2),
                "all_rounds": [asdict(cost) for cost in measured],
            }
            for name, measured in costs.items()
        },
    }
