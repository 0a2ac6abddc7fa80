"""Drivers whose event store is on S3, and what Spark 3.5 needs to reach it by ``s3a://``: jars that only tests have."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider.core.job import JobId
from tests.support.driver import DriverHarness
from tests.support.jars import class_path
from tests.support.quick_jvm import WITHOUT_COMPILER
from tests.support.s3_gateway import S3Server


class S3Driver(DriverHarness):
    """A driver harness whose event store is a fresh prefix on *server*."""

    bucket = "driver-tests"

    def __init__(self, folder: Path, server: S3Server) -> None:
        server.create_bucket(self.bucket)
        self.prefix = f"tests/{uuid.uuid4().hex}"
        storage: Mapping[str, str] = {"endpoint-url": server.endpoint, "addressing-style": "path"}
        super().__init__(
            folder, f"s3://{self.bucket}/{self.prefix}", storage=storage, environment={**server.environment}
        )
        self.client: Any = server.session().client("s3", endpoint_url=server.endpoint)

    def pending_uploads(self) -> list[str]:
        uploads = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [upload["Key"] for upload in uploads if upload["Key"].startswith(self.prefix)]

    def partition_keys(self) -> list[str]:
        prefix = f"{self.prefix}/{JobId.parse(self.job_id).prefix}/partitions/"
        page = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for entry in page.get("Contents", [])]


def s3a_settings(server: S3Server) -> dict[str, str]:
    """Return Spark's settings; without the jars the test is skipped, or fails in CI."""
    return {
        "spark.driver.extraClassPath": class_path("s3a"),
        "spark.executor.extraClassPath": class_path("s3a"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.level=warn {WITHOUT_COMPILER}",
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        # The gateway refuses the chunked signatures of this SDK where there is no TLS.
        "spark.hadoop.fs.s3a.signing-algorithm": "S3SignerType",
    }
