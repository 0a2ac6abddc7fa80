"""For every folder: S3 servers, started when first asked for, the order of files, and options for all of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

import tests.support.startup.sitecustomize  # noqa: F401 - before anything of Airflow's
from tests.support.durations import Durations, kept_durations, longest_first
from tests.support.parameters import walk_most_cases
from tests.support.quick_jvm import WITHOUT_COMPILER
from tests.support.quick_python import keep_no_more
from tests.support.s3_gateway import INSTALL, REQUIRED, S3Server, missing_programs
from tests.support.s3_gateway import s3_gateway as run_gateway

DEADLINE = "SPARK_RECOVERY_DEADLINE"
"""When ``make integration`` begins no further test, in seconds since 1970: a slow machine says what it has not run."""

os.environ.setdefault("SPARK_LAUNCHER_OPTS", WITHOUT_COMPILER)  # of the JVM that writes spark-submit's command


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--walk", action="store_true", help="also run the long walks (marker 'walk'), which take hours")
    parser.addoption("--keep-durations", action="store_true", help="write what each file took to tests/durations.json")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config.getoption("--keep-durations")))


@pytest.hookimpl(tryfirst=True)  # before the items that -m does not select are taken out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("airflow") or needs_gateway(item):
            item.add_marker("integration")
    walk_most_cases(items)
    if not config.getoption("--walk"):
        for item in items:
            if item.get_closest_marker("walk"):
                item.add_marker(pytest.mark.skip(reason="takes long; its like runs here, and it with make walk"))
    items[:] = longest_first(items, kept_durations())


@pytest.hookimpl(tryfirst=True)  # before the test's fixtures are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("integration") and time.time() > float(os.environ.get(DEADLINE, "inf")):
        pytest.skip(f"not run: the time that {DEADLINE} gives was over; on a machine of ordinary speed all tests run")


def pytest_collection_finish() -> None:
    keep_no_more()


@pytest.fixture
def nobody() -> Iterator[None]:
    """Root may write everywhere, so tests of permissions run with another effective user."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield
        os.seteuid(0)
    else:
        yield


def needs_gateway(item: pytest.Item) -> bool:
    """Whether the test asks for Ceph's gateway, as a fixture or by a parameter of one."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = {*getattr(item, "fixturenames", ()), *(value for value in parameters if isinstance(value, str))}
    return not names.isdisjoint({"gateway", "s3_gateway"})


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
