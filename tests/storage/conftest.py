"""Stores of every kind behind one fixture, each with a root of its own."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.files import FileObjectStore, file_uri
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.uris import open_store
from tests.support.http_faults import FaultyServer
from tests.support.s3_gateway import S3Server

if TYPE_CHECKING:
    from tests.storage.s3_job import Job

BUCKET = "recovery-tests"
ACCESS = S3Server("", "testaccess", "testsecret")
"""What lets one in at both servers for tests."""
PREFIX = "jobs/etl/run/task/-1/@job"

KINDS = ["file", "moto", pytest.param("gateway", marks=pytest.mark.process)]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of both servers for tests, whatever the environment of the test run holds."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in ACCESS.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who watches a heartbeat looks as often as it beats here, not each second or two."""
    monkeypatch.setattr("airflow_provider.storage.liveness._SLOWEST_POLL", 0.05)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> S3Server:
    """The S3 server that an indirect parameter names."""
    return request.getfixturevalue({"moto": "moto", "gateway": "s3_gateway"}[request.param])  # type: ignore[no-any-return]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store: files, moto or Ceph's gateway."""
    if request.param == "file":
        return FileObjectStore(tmp_path / "event store")
    return open_on(request.getfixturevalue({"moto": "moto", "gateway": "s3_gateway"}[request.param]))


@pytest.fixture(params=KINDS[1:])
def server_store(request: pytest.FixtureRequest) -> ObjectStore:
    """An empty store on S3: moto or Ceph's gateway."""
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


@pytest.fixture
def job(proxy: FaultyServer, tmp_path: Path) -> Iterator[Job]:
    """One whose driver reaches S3 through the proxy."""
    from tests.storage.s3_job import Job

    yield Job(proxy, tmp_path, f"misbehaves/{uuid.uuid4().hex}")
    proxy.reset()


@pytest.fixture(scope="session")
def quiet(shared_proxy: FaultyServer, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many requests a job makes that nobody harms."""
    from tests.storage.plain_driver import is_right
    from tests.storage.s3_job import Job

    shared_proxy.reset()
    job = Job(shared_proxy, tmp_path_factory.mktemp("quiet"), f"misbehaves/{uuid.uuid4().hex}", ACCESS.session())
    assert is_right(job.run())
    return len(shared_proxy.requests)


def open_on(server: S3Server, prefix: str | None = None) -> ObjectStore:
    """Open an empty root in the server's bucket for tests."""
    bucket = server.create_bucket(BUCKET)
    root = f"tests/{uuid.uuid4().hex}" if prefix is None else prefix
    return open_store(f"s3://{bucket}/{root}", StorageOptions(endpoint_url=server.endpoint))


def wait_until(condition: Callable[[], object], timeout: float = 20) -> None:
    """Wait for what other threads bring about."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.002)
