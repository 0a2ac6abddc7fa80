"""The demo's S3: moto's server on a loopback port by default, or a given endpoint."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from airflow_provider.cli.demo.demo_processes import DemoError, Processes, free_port, wait_until
from airflow_provider.core.options import StorageOptions

REGION = "us-east-1"


@dataclass(frozen=True)
class Bucket:
    """A bucket and how to reach it."""

    endpoint_url: str
    access_key: str
    secret_key: str
    name: str

    @property
    def storage_options(self) -> StorageOptions:
        """The options for :func:`airflow_provider.storage.uris.open_store`."""
        return StorageOptions(endpoint_url=self.endpoint_url, region=REGION, addressing_style="path")

    @property
    def session(self) -> boto3.Session:
        """A session with the bucket's credentials."""
        return boto3.Session(self.access_key, self.secret_key, region_name=REGION)

    def create(self) -> None:
        """Create the bucket unless it exists. :raises DemoError: the server refuses it or does not answer"""
        config = Config(s3={"addressing_style": "path"}, connect_timeout=5, retries={"total_max_attempts": 2})
        client = self.session.client("s3", endpoint_url=self.endpoint_url, config=config)
        try:
            client.create_bucket(Bucket=self.name)
        except (client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
            return
        except (ClientError, BotoCoreError) as error:
            raise DemoError(f"Bucket {self.name} cannot be created at {self.endpoint_url}: {error}") from error


def embedded_bucket(processes: Processes, name: str) -> Bucket:
    """Start moto's server and return its bucket *name*; the contents are lost when the server ends."""
    port = free_port()
    server = processes.start("s3-server", [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)])
    bucket = Bucket(f"http://127.0.0.1:{port}", "spark-recovery-demo", "demo-only-secret", name)

    def created() -> bool:
        if server.poll() is not None:
            raise DemoError("The S3-compatible server has ended at once.", processes.log("s3-server"))
        try:
            bucket.create()
        except DemoError:
            return False
        return True

    wait_until("the S3-compatible server", created, timeout=60)
    return bucket


def bucket_at(endpoint_url: str, name: str) -> Bucket:
    """Return the bucket *name* on a running server, with credentials from the environment."""
    keys = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not keys[0] or not keys[1]:
        raise DemoError("--endpoint-url needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment.")
    bucket = Bucket(endpoint_url, keys[0], keys[1], name)
    bucket.create()
    return bucket
