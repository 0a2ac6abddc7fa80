"""Stores of every kind behind one fixture, each with a root of its own."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider.recovery.options import StorageOptions
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.uris import file_uri, open_store
from tests.support.http_faults import FaultyServer
from tests.support.s3_gateway import S3Server

BUCKET = "recovery-tests"
PREFIX = "jobs/etl/run/task/-1/@job"

KINDS = ["file", "moto", pytest.param("gateway", marks=pytest.mark.process)]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of both servers for tests, whatever the environment of the test run holds."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in S3Server("", "testaccess", "testsecret").environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> S3Server:
    """The S3 server that an indirect parameter names."""
    return request.getfixturevalue({"moto": "moto", "gateway": "s3_gateway"}[request.param])


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store: files, moto or Ceph's gateway."""
    if request.param == "file":
        return FileObjectStore(tmp_path / "event store")
    return open_on(request.getfixturevalue({"moto": "moto", "gateway": "s3_gateway"}[request.param]))


@pytest.fixture
def files(tmp_path: Path) -> FileObjectStore:
    store = open_store(file_uri(tmp_path / "store"))
    assert isinstance(store, FileObjectStore)
    return store


@pytest.fixture(scope="session")
def shared_proxy(moto: S3Server) -> Iterator[FaultyServer]:
    moto.create_bucket(BUCKET)
    with FaultyServer(moto.endpoint).running() as server:
        yield server


@pytest.fixture
def proxy(shared_proxy: FaultyServer) -> FaultyServer:
    shared_proxy.reset()
    return shared_proxy


def open_on(server: S3Server, prefix: str | None = None) -> ObjectStore:
    """Open an empty root in the server's bucket for tests."""
    bucket = server.create_bucket(BUCKET)
    root = f"tests/{uuid.uuid4().hex}" if prefix is None else prefix
    return open_store(f"s3://{bucket}/{root}", StorageOptions(endpoint_url=server.endpoint))


def wait_until(condition: Callable[[], object], timeout: float = 20) -> None:
    """Wait for what other threads bring about."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
