"""The event store's credentials are its own: the job's S3 access is what it is without recovery."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.support.driver import DriverHarness
from tests.support.s3_gateway import S3Server

pytestmark = [pytest.mark.process, pytest.mark.integration]

SCRIPT = """\
from pyspark.sql import SparkSession
from airflow_provider.spark import checkpoint

spark = SparkSession.builder.getOrCreate()
print("rows", checkpoint(spark.range(8), "few").count())
conf = spark.sparkContext._jsc.hadoopConfiguration()
print("job's keys", [bool(conf.get(f"fs.s3a.{name}")) for name in ("access.key", "secret.key", "session.token")])
"""


def test_the_stores_keys_do_not_become_the_jobs(driver: DriverHarness, moto: S3Server, tmp_path: Path) -> None:
    """Given under their own names they open the store, and Spark's S3 credentials stay unset."""
    (tmp_path / "job.py").write_text(SCRIPT)
    driver.event_store = f"s3://{moto.create_bucket('own-keys')}/{uuid.uuid4().hex}"
    driver.storage = {"endpoint-url": moto.endpoint, "addressing-style": "path", "region": "us-east-1"}
    driver.environment = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "SPARK_RECOVERY_AWS_ACCESS_KEY_ID": moto.access_key,
        "SPARK_RECOVERY_AWS_SECRET_ACCESS_KEY": moto.secret_key,
    }
    done = driver.run(tmp_path / "job.py")
    assert done.code == 0, done.log
    assert "rows 8" in done.log
    assert "is not stored" not in done.log
    assert "FINISHED" in done.log
    assert "job's keys [False, False, False]" in done.log
