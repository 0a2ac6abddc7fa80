"""Drivers whose event store is on S3: killed in the middle of an upload, and met by damaged objects."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from tests.spark.killed_jobs import KILLED, expected, result
from tests.spark.s3_driver import S3Driver
from tests.support.s3_gateway import S3Server

pytestmark = pytest.mark.process


@pytest.fixture
def s3_driver(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Driver:
    server: S3Server = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)  # for what the test itself lists
    return S3Driver(tmp_path, server)


@pytest.mark.parametrize("s3_driver", [pytest.param("moto", marks=pytest.mark.walk), "s3_gateway"], indirect=True)
def test_killed_within_a_multipart_upload(s3_driver: S3Driver) -> None:
    """A half-finished upload is no partition; the retry uploads it again, and after success nothing is left of it."""
    out = str(s3_driver.folder / "out")
    first = s3_driver.run("big_partition.py", out, fault=faults.WITHIN_MULTIPART_UPLOAD)
    assert first.code == KILLED, first.log
    assert len(s3_driver.pending_uploads()) == 1
    stored = {p.index for p in s3_driver.partitions("noise")}
    assert 0 not in stored
    second = s3_driver.run("big_partition.py", out)
    assert second.code == 0, second.log
    assert second.tasks["checkpoint noise"] == 3 - len(stored)
    assert pq.read_table(out)["rows"].to_pylist() == [300_600]
    assert s3_driver.pending_uploads() == []
    assert s3_driver.partition_keys() == []
    plain = s3_driver.run("big_partition.py", str(s3_driver.folder / "plain"), options={"enabled": "false"})
    assert plain.code == 0, plain.log
    assert pq.read_table(out) == pq.read_table(s3_driver.folder / "plain")


@pytest.mark.parametrize("s3_driver", ["moto"], indirect=True)
def test_a_damaged_object_is_named_and_computed_again(s3_driver: S3Driver, orders: Path) -> None:
    """Bytes changed behind our back are never used: attempt 2 names the object and computes it and no other again."""
    arguments = (str(orders), str(s3_driver.folder / "out"))
    first = s3_driver.run("two_vertices.py", *arguments, fault=faults.AFTER_VERTEX_FINISHED)
    assert first.code == KILLED, first.log
    victim = next(key for key in s3_driver.partition_keys() if "/totals-" in key and "/000002-of-" in key)
    body = bytearray(s3_driver.client.get_object(Bucket=s3_driver.bucket, Key=victim)["Body"].read())
    body[len(body) // 2] ^= 1
    s3_driver.client.put_object(Bucket=s3_driver.bucket, Key=victim, Body=bytes(body))

    second = s3_driver.run("two_vertices.py", *arguments)
    assert second.code == 0, second.log
    (failed,) = [line for line in second.log.splitlines() if "checkpoint 'graded' failed" in line]
    assert victim.rsplit("/", 1)[-1] in failed, second.log
    assert "damaged" in failed
    assert "Restarting 'totals', 'graded'" in failed
    assert second.tasks["checkpoint totals"] == 1
    assert result(s3_driver.folder / "out") == expected(orders)
