"""Drivers that are killed while the tasks of a write to ``s3a://`` commit, and run again: its rows are there once."""

from __future__ import annotations

import io
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.killed_jobs import KILLED
from tests.spark.s3_driver import s3a_settings
from tests.support.driver import DriverHarness, Outcome
from tests.support.jars import SPARK
from tests.support.s3_gateway import S3Server
from tests.support.sparks import spark_python

pytestmark = [pytest.mark.process, pytest.mark.walk, pytest.mark.timeout(900)]

BUCKET = "lake"
ONCE = list(range(400))
OLD, OTHER_PARTITION = 9000, 9007


class S3aJob:
    """Attempts at ``jobs/killed_writes.py`` with Spark 3.5, and what is in the bucket."""

    def __init__(self, folder: Path, server: S3Server, *kinds: str) -> None:
        server.create_bucket(BUCKET)
        self.client: Any = server.session().client("s3", endpoint_url=server.endpoint)
        self.prefix, self.kinds, self.die = uuid.uuid4().hex, kinds, folder / "die"
        self.target = f"s3a://{BUCKET}/{self.prefix}"
        self.driver = DriverHarness(folder, f"file://{folder}/store", python=spark_python(SPARK))
        self.driver.environment = {
            **server.environment,
            "AWS_ENDPOINT_URL": server.endpoint,  # for the task that looks how many others have committed
        }
        self.driver.settings = {**s3a_settings(server), "spark.sql.warehouse.dir": f"{self.target}/warehouse"}
        self.die.mkdir()
        for kind in kinds:
            (self.die / kind).touch()

    def put(self, name: str, *ids: int) -> None:
        """Write a file as another writer would."""
        buffer = io.BytesIO()
        pq.write_table(pa.table({"id": ids}), buffer)
        self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}", Body=buffer.getvalue())

    def run(self) -> Outcome:
        return self.driver.run("killed_writes.py", self.target, str(self.die), *self.kinds)

    def keys(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.prefix}/").get("Contents", [])
        return [entry["Key"].removeprefix(f"{self.prefix}/") for entry in found]

    def ids(self, kind: str) -> list[int]:
        """The rows that a reader sees, in order."""
        ids: list[int] = []
        for key in self.keys():
            parts = key.removeprefix("warehouse/").split("/")
            if parts[0] == kind and key.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in parts):
                body = self.client.get_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")["Body"].read()
                ids += pq.read_table(io.BytesIO(body), columns=["id"])["id"].to_pylist()
        return sorted(ids)

    def leftovers(self) -> list[str]:
        """What is pending, for ever: folders of tasks, and uploads that cost money."""
        uploads = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        pending = [upload["Key"] for upload in uploads if upload["Key"].startswith(self.prefix)]
        return [key for key in self.keys() if "_temporary" in key or ".spark-staging" in key] + pending


@pytest.mark.parametrize("algorithm", [1, 2])
def test_killed_with_three_of_four_tasks_committed(tmp_path: Path, s3_gateway: S3Server, algorithm: int) -> None:
    """Each attempt is killed in the next write; in the end all have their rows once, and nothing else is left."""
    kinds = [f"{write}_{algorithm}" for write in ("append", "error", "dynamic", "ctas")]
    job = S3aJob(tmp_path, s3_gateway, *kinds)
    append, error, dynamic, ctas = kinds
    job.put(f"{dynamic}/half=0/old-part.parquet", OLD)
    job.put(f"{dynamic}/half=7/old-part.parquet", OTHER_PARTITION)
    for kind in kinds:
        killed = job.run()
        assert killed.code == KILLED, f"{kind}: {killed.log}"
    last = job.run()
    assert last.code == 0, last.log
    assert job.ids(append) == job.ids(error) == job.ids(ctas) == ONCE
    assert job.ids(dynamic) == [*ONCE, OTHER_PARTITION]
    assert job.leftovers() == []
