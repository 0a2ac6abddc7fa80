"""What the cluster's jobs shuffle, the settings with which two executors do, and what has to come of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.core import faults
from airflow_provider.core.partitions import MAP_OUTPUT
from tests.support.driver import DriverHarness, Outcome
from tests.support.standalone import EXECUTOR_SETTINGS, StandaloneCluster

FILES = 24
AUTO = {"recovery-points": "auto", "keep-partitions": "", "overhead-budget": "1e6"}


def write_orders(folder: Path) -> Path:
    """Write 12,000 orders of 300 customers, one file for each map task."""
    for part in range(FILES):
        rows = range(part * 500, part * 500 + 500)
        table = pa.table({"customer": [row * 7919 % 300 for row in rows], "amount": [row % 97 for row in rows]})
        pq.write_table(table, folder / f"part-{part:02}.parquet")
    return folder


def check_rows(orders: Path, target: Path) -> pa.Table:
    """Check the job's rows by Arrow; return them."""
    expected = pq.read_table(orders).group_by("customer").aggregate([("amount", "sum"), ("amount", "max")])
    found = pq.read_table(target).sort_by("customer")
    columns = zip(("customer", "amount_sum", "amount_max"), ("customer", "total", "most"), strict=True)
    assert all(expected.sort_by("customer")[one].to_pylist() == found[other].to_pylist() for one, other in columns)
    return found


@dataclass(frozen=True)
class KilledAndRetried:
    """A driver that was killed while its reducers waited, and the one that came after it.

    :ivar put_back: what the second one has to say of the map outputs that the first one had stored
    :ivar target: the folder with the job's rows
    """

    first: Outcome
    put_back: str
    second: Outcome
    target: Path


def killed_and_retried(
    driver: DriverHarness, orders: Path, script: str | Path = "held_reducers.py", killed: int = -signal.SIGKILL
) -> KilledAndRetried:
    """Kill a driver in auto mode when map outputs are stored, and run the job again.

    :param killed: the exit code of the first one
    """
    target, gate = driver.folder / "out", driver.folder / "gate"
    arguments = [str(orders), str(target), str(gate)]
    # Few enough for the executor without the reducer, which copies its own: it may have run few of the tasks.
    first = driver.run(script, *arguments, fault=f"{faults.AFTER_PARTITION_EVENT}@2", options=AUTO)
    assert first.code == killed, first.log
    stored = driver.partitions("shuffle~28customer~29")
    assert len(stored) >= 2
    assert all(partition.suffix == MAP_OUTPUT for partition in stored)
    gate.touch()
    second = driver.run(script, *arguments, options=AUTO)
    assert second.code == 0, second.log
    told = f"shuffle(customer): {len(stored)} map outputs put back, {FILES - len(stored)} to compute"
    return KilledAndRetried(first, told, second, target)


def settings(cluster: StandaloneCluster) -> dict[str, str]:
    return {
        "spark.master": cluster.url,
        "spark.scheduler.mode": "FAIR",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # of these: both executors have map outputs
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",  # a busy machine starts one of them late
        "spark.sql.shuffle.partitions": "1",  # the other core is free for copying
        "spark.sql.files.maxPartitionBytes": "4000",
        "spark.sql.files.openCostInBytes": "4000",
        **EXECUTOR_SETTINGS,
    }
