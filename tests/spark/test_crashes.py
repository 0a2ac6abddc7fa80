"""A Spark driver killed at a commit boundary, then run again, gives the result of a run that was never killed.

Every boundary on every kind of store: ``tests/storage/test_crash_at_every_boundary.py``.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from airflow_provider.core.options import INTEGRITY_SECRET
from tests.spark.killed_jobs import KILLED, expected, result
from tests.support.driver import DriverHarness, Outcome

pytestmark = pytest.mark.process

KEEP = {"keep-partitions": ""}


def run(driver: DriverHarness, orders: Path, fault: str = "", script: str = "two_vertices.py") -> Outcome:
    outcome = driver.run(script, str(orders), str(driver.folder / "out"), fault=fault, options=KEEP)
    assert outcome.code == (KILLED if fault else 0), outcome.log
    return outcome


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(faults.BEFORE_FIRST_EVENT, marks=pytest.mark.walk),
        f"{faults.AFTER_PARTITION_PUT}@2",
        pytest.param(faults.BEFORE_VERTEX_FINISHED, marks=pytest.mark.walk),
        pytest.param(f"{faults.AFTER_PARTITION_EVENT}@8", marks=pytest.mark.walk),
        pytest.param(f"{faults.AFTER_SNAPSHOT}@2", marks=pytest.mark.walk),
        pytest.param(faults.BEFORE_JOB_FINISHED, marks=pytest.mark.walk),
    ],
)
def test_killed_at_a_commit_boundary_then_run_again(driver: DriverHarness, orders: Path, fault: str) -> None:
    """Whatever the moment of the crash, the second attempt ends with the right result and computes nothing twice."""
    run(driver, orders, fault)
    stored = {name: len({p.index for p in driver.partitions(name)}) for name in ("totals", "graded")}
    second = run(driver, orders)
    assert result(driver.folder / "out") == expected(orders)
    for name, parallelism in (("totals", 6), ("graded", 4)):
        by_epoch = {epoch: {p.index for p in driver.partitions(name) if p.epoch == epoch} for epoch in (1, 2)}
        assert len(by_epoch[1]) >= stored[name]  # tasks may have committed what the first driver did not come to
        assert second.tasks[f"checkpoint {name}"] == len(by_epoch[2]) == parallelism - len(by_epoch[1]), second.log


@pytest.mark.integration
@pytest.mark.parametrize(
    "fault",
    [faults.AFTER_FAILURE_HANDLED, pytest.param(f"{faults.AFTER_COORDINATOR_SNAPSHOT}@2", marks=pytest.mark.walk)],
)
def test_killed_between_a_failure_and_its_restart_or_after_a_step(
    driver: DriverHarness, orders: Path, fault: str
) -> None:
    """The second attempt knows the failure, the listing and the step's result, and ends with the right result."""
    run(driver, orders, fault, "step_and_failure.py")
    second = run(driver, orders, script="step_and_failure.py")
    assert result(driver.folder / "out") == expected(orders)
    assert "source/orders: reading the 2 files that attempt 1 pinned" in second.log
    assert "step/modulus: finished in attempt 1, not run again" in second.log
    restarted = "checkpoint 'graded' failed: RuntimeError: by chance" in second.log
    assert restarted == (fault != faults.AFTER_FAILURE_HANDLED)  # then the first attempt had met it


@pytest.mark.integration
def test_what_tasks_have_committed_survives_a_driver_that_has_not_come_to_it(driver: DriverHarness) -> None:
    """The next attempt finds Spark's own files and computes none of their partitions; nothing else of them stays."""
    arguments = ("not_come_to.py", str(driver.folder / "out"), str(driver.folder / "begun"))
    first = driver.run(*arguments, options=KEEP)
    assert first.code == KILLED, first.log
    assert len(driver.partitions("doubled")) == 1
    second = driver.run(*arguments, options=KEEP)
    assert second.code == 0, second.log
    assert result(driver.folder / "out") == [(2 * row,) for row in range(400)]
    assert second.tasks["checkpoint doubled"] == 0, second.log
    stored = driver.partitions("doubled")
    assert sorted((p.index, p.epoch, p.rows) for p in stored) == [(index, 1, 100) for index in range(4)]
    [folder] = (driver.folder / "store").rglob(stored[0].layout)
    assert sorted(path.name for path in folder.iterdir()) == sorted(Path(p.key).name for p in stored)


@pytest.mark.walk
@pytest.mark.integration
def test_attempt_two_computes_exactly_the_missing_partitions(driver: DriverHarness) -> None:
    """Objects and tasks of attempt 2 are those of the partitions that attempt 1 did not store, no more and no less."""
    gate = driver.folder / "gate"  # partitions 2 and 3 wait for it, so that attempt 1 dies with exactly two stored
    arguments = (str(driver.folder / "out"), str(gate), str(gate))
    first = driver.run("gated.py", *arguments, fault=f"{faults.AFTER_PARTITION_EVENT}@2", options=KEEP)
    assert first.code == KILLED, first.log
    assert {p.index for p in driver.partitions("doubled")} == {0, 1}
    gate.touch()
    second = driver.run("gated.py", *arguments, options=KEEP)
    assert second.code == 0, second.log
    assert {p.index for p in driver.partitions("doubled") if p.epoch == 2} == {2, 3}
    assert len(driver.partitions("doubled")) == 4
    assert second.tasks["checkpoint doubled"] == 2


@pytest.mark.walk
def test_a_crash_during_reconciliation_is_survived_by_attempt_three(driver: DriverHarness, orders: Path) -> None:
    """Attempt 2 dies while it reconciles; attempt 3 resumes from what attempt 1 stored."""
    run(driver, orders, f"{faults.AFTER_PARTITION_EVENT}@8")
    stored = {p.key for p in driver.partitions("totals")} | {p.key for p in driver.partitions("graded")}
    run(driver, orders, faults.DURING_RECONCILIATION)
    assert {p.key for p in driver.partitions("totals")} | {p.key for p in driver.partitions("graded")} >= stored
    third = run(driver, orders)
    assert result(driver.folder / "out") == expected(orders)
    assert third.tasks["checkpoint totals"] == 0
    computed = {p.index for p in driver.partitions("graded") if p.epoch == 3}
    assert third.tasks["checkpoint graded"] == len(computed) <= 4 - (len(stored) - 6)


@pytest.mark.parametrize(
    "secret", [pytest.param("", marks=pytest.mark.walk, id="plain"), pytest.param("5ea1" * 16, id="sealed")]
)
def test_killed_while_map_outputs_are_stored(
    driver: DriverHarness, tmp_path: Path, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was stored but not told of is found, too: the retry of an unmodified job puts all of them back."""
    driver.environment = {INTEGRITY_SECRET: secret}
    monkeypatch.setenv(INTEGRITY_SECRET, secret)  # for what the test itself lists
    source, target = tmp_path / "orders", tmp_path / "totals"
    source.mkdir()
    rows = pa.table(
        {"customer": [row * 7919 % 300 for row in range(6000)], "amount": [row % 97 for row in range(6000)]}
    )
    for part in range(24):
        pq.write_table(rows.slice(part * 250, 250), source / f"part-{part:02}.parquet")
    driver.settings = {
        **driver.settings,
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.files.maxPartitionBytes": "4000",
        "spark.sql.files.openCostInBytes": "4000",
    }
    options = {**KEEP, "recovery-points": "auto", "overhead-budget": "1e6"}
    gate = tmp_path / "gate"
    arguments = (str(source), str(target), str(gate))
    first = driver.run("held_reducers.py", *arguments, fault=f"{faults.AFTER_PARTITION_PUT}@3", options=options)
    assert first.code == KILLED, first.log
    stored = driver.partitions("shuffle~28customer~29")
    assert len(stored) >= 3
    gate.touch()
    second = driver.run("held_reducers.py", *arguments, options=options)
    assert second.code == 0, second.log
    missing = stored[0].parallelism - len(stored)
    assert f"shuffle(customer): {len(stored)} map outputs put back, {missing} to compute" in second.log
    totals = rows.group_by("customer").aggregate([("amount", "sum"), ("amount", "max")]).sort_by("customer")
    got = pq.read_table(target).sort_by("customer")
    assert [column.to_pylist() for column in got.columns] == [
        totals[name].to_pylist() for name in ("customer", "amount_sum", "amount_max")
    ]
