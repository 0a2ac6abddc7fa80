"""A local S3 server and stores on it that count their requests by kind."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.s3.s3_client import s3_client
from airflow_provider.storage.uris import open_store
from tests.support.moto_server import moto_server
from tests.support.s3_gateway import S3Server, missing_programs, s3_gateway


@contextmanager
def local_s3() -> Iterator[tuple[str, S3Server]]:
    """Run Ceph's gateway, or moto's server in this process where that is not installed; yield its name, too."""
    name, running = ("moto", moto_server()) if missing_programs() else ("Ceph", s3_gateway())
    with running as server:
        yield name, server


class Requests:
    """The requests that were sent, with their moments (monotonic seconds)."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str]] = []

    def count(self) -> dict[str, int]:
        """Return how many there were of each kind: ``PutObject``, ``ListObjectsV2``, …"""
        return dict(sorted(Counter(kind for _, kind in self.sent).items()))

    def sending(self, event_name: str, **_: object) -> None:
        """Be told of a request; the listener that botocore calls."""
        self.sent.append((time.monotonic(), event_name.rpartition(".")[2]))


def counted_store(server: S3Server, bucket: str) -> tuple[ObjectStore, Requests]:
    """Return a store in a bucket, which is made if need be, and what it sends from now on."""
    os.environ.update(server.environment)
    options = StorageOptions(endpoint_url=server.endpoint, addressing_style="path")
    requests = Requests()
    # The client is the one that the store is about to get, because a process keeps its clients.
    s3_client(options).meta.events.register("before-send.s3", requests.sending)
    return open_store(f"s3://{server.create_bucket(bucket)}/store", options), requests
