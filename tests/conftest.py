"""Fixtures for every folder: S3 servers, started when first asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.s3_gateway import INSTALL, REQUIRED, S3Server, missing_programs
from tests.support.s3_gateway import s3_gateway as run_gateway


@pytest.fixture(scope="session")
def s3_gateway() -> Iterator[S3Server]:
    """Ceph's object gateway; give tests that use it the marker ``process``."""
    missing = missing_programs()
    if missing:
        reason = f"not installed: {', '.join(missing)}; on Debian: {INSTALL}"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with run_gateway() as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """Moto's server in this process."""
    from tests.support.moto_server import moto_server  # slow to import

    with moto_server() as server:
        yield server
