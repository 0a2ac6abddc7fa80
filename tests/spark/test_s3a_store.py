"""Drivers whose event store on S3 is reached by ``s3a://``, too: Spark's own writer stores their recovery points."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.core import faults
from airflow_provider.core.partitions import ROWS, WRITTEN
from tests.spark.killed_jobs import KILLED, expected, result
from tests.spark.s3_driver import S3Driver, s3a_settings
from tests.support.jars import SPARK
from tests.support.s3_gateway import S3Server
from tests.support.sparks import spark_python

pytestmark = [pytest.mark.process, pytest.mark.integration]


def on_s3a(driver: S3Driver, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Driver:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)  # for what the test itself lists
    driver.python, driver.settings = spark_python(SPARK), s3a_settings(server)
    return driver


@pytest.fixture
def driver(tmp_path: Path, s3_gateway: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Driver:
    return on_s3a(S3Driver(tmp_path, s3_gateway), s3_gateway, monkeypatch)


def test_what_tasks_have_committed_is_reused(driver: S3Driver, orders: Path) -> None:
    """A driver is killed behind its third partition: the next one computes what no task has committed, the files stay
    where Spark has put them until the job ends, and then nothing is left.
    """
    arguments = (str(orders), str(driver.folder / "out"))
    first = driver.run("two_vertices.py", *arguments, fault=f"{faults.AFTER_PARTITION_PUT}@3")
    assert first.code == KILLED, first.log
    named = driver.partitions("totals")
    assert len(named) >= 3
    assert {each.suffix for each in named} == {WRITTEN}
    second = driver.run("two_vertices.py", *arguments)
    assert second.code == 0, second.log
    assert second.tasks["checkpoint totals"] <= 6 - len(named)
    assert second.tasks["checkpoint graded"] == 4
    assert result(driver.folder / "out") == expected(orders)
    assert driver.partition_keys() == []
    assert driver.pending_uploads() == []


@pytest.mark.walk
def test_a_damaged_file_is_computed_again(driver: S3Driver, orders: Path) -> None:
    """Spark's reader finds that a page has changed; the next attempt, or a restart, computes that partition alone."""
    arguments = (str(orders), str(driver.folder / "out"))
    first = driver.run("two_vertices.py", *arguments, fault=faults.AFTER_VERTEX_FINISHED)
    assert first.code == KILLED, first.log
    victim = next(key for key in driver.partition_keys() if "/totals-" in key and "/part-00002-" in key)
    body = bytearray(driver.client.get_object(Bucket=driver.bucket, Key=victim)["Body"].read())
    body[30] ^= 1
    driver.client.put_object(Bucket=driver.bucket, Key=victim, Body=bytes(body))
    second = driver.run("two_vertices.py", *arguments)
    assert second.code == 0, second.log
    assert second.tasks["checkpoint totals"] == 1
    assert "checkpoint 'graded' failed" in second.log
    assert "Restarting 'totals', 'graded'" in second.log
    assert "lost:" not in second.log
    assert result(driver.folder / "out") == expected(orders)


def stored_by_a_killed_driver(driver: S3Driver, orders: Path) -> set[str]:
    arguments = (str(orders), str(driver.folder / "out"))
    first = driver.run("two_vertices.py", *arguments, fault=f"{faults.AFTER_PARTITION_EVENT}@2")
    assert first.code == KILLED, first.log
    return {each.suffix for each in driver.partitions("totals")}


@pytest.mark.walk
def test_where_spark_writes_elsewhere_python_stores(driver: S3Driver, orders: Path, moto: S3Server) -> None:
    """``s3a://`` leads to another server: what the JVM has written there is not there for recovery."""
    moto.create_bucket(driver.bucket)
    driver.settings = {**driver.settings, "spark.hadoop.fs.s3a.endpoint": moto.endpoint}
    assert stored_by_a_killed_driver(driver, orders) == {ROWS}


@pytest.mark.walk
@pytest.mark.parametrize(("sse", "suffix"), [("", WRITTEN), ("AES256", ROWS)])
def test_what_is_to_be_encrypted_python_stores(
    tmp_path: Path, moto: S3Server, monkeypatch: pytest.MonkeyPatch, orders: Path, sse: str, suffix: str
) -> None:
    """S3A knows nothing of the connection's encryption; without one Spark stores on the same server."""
    driver = on_s3a(S3Driver(tmp_path, moto), moto, monkeypatch)
    driver.storage = {**driver.storage, **({"sse": sse} if sse else {})}
    assert stored_by_a_killed_driver(driver, orders) == {suffix}
