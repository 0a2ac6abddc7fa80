"""One Spark session for all tests that share a process; drivers of their own run in their own processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.clientserver import ClientServerConnection
from py4j.protocol import MEMORY_COMMAND_NAME

from tests.spark.attempts import Attempts
from tests.support import disks
from tests.support.driver import DriverHarness
from tests.support.quick_jvm import QUICK_JVM
from tests.support.quick_python import QUICK_WORKERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.retainedJobs", "100000")  # of all tests: some count them
        # As of users who turn it off: what recovery asks of running tasks, it does not ask of what Spark shows of them.
        .config("spark.ui.liveUpdate.period", "1d")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config(map={**QUICK_WORKERS})
        # Spark 4.2 may wait for ever for a Python function over columns that it has read from files.
        .config("spark.sql.execution.arrow.pythonUDF.columnarInput.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What this attempt's script is: its code removes nothing, unless a test writes another one."""
    path = tmp_path / "script.py"
    path.write_text("print('no file is removed')\n")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(path), raising=False)
    return path


@pytest.fixture(autouse=True)
def _session_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """PySpark makes other sessions of a test the active ones, whose settings the next test would have."""
    session: Any = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    shared = hasattr(session, "_jsparkSession")  # some tests call a version by this name
    if shared and session.sparkContext._jsc is not None:  # nobody has stopped it
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)


@pytest.fixture(autouse=True, scope="module")
def _views_gone() -> Iterator[None]:
    """The views that a module's tests have left are no tables of the next module, whichever that is."""
    yield
    loaded = sys.modules.get("pyspark.sql")
    session: Any = loaded.SparkSession._instantiatedSession if loaded is not None else None
    if hasattr(session, "_jsparkSession") and session.sparkContext._jsc is not None:  # nobody has stopped it
        session._jsparkSession.sessionState().catalog().clearTempTables()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Python asks of the JVM; not what it lets go of, at moments of its own."""
    asked = list[str]()
    send = ClientServerConnection.send_command

    def counted(self: Any, command: str) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):
            asked.append(command)
        return send(self, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    return asked


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 orders of 300 customers, as two Parquet files."""
    folder = tmp_path_factory.mktemp("orders")
    for part in range(2):
        rows = range(part * 1000, part * 1000 + 1000)
        table = pa.table({"customer": [row * 7919 % 300 for row in rows], "amount": [row % 97 for row in rows]})
        pq.write_table(table, folder / f"part-{part}.parquet")
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    with disks.small_disk(tmp_path / "small", 1) as disk:
        if disk is None:
            pytest.skip("a file system can be mounted by root only")
        yield disk


@pytest.fixture
def driver(tmp_path: Path) -> DriverHarness:
    return DriverHarness(tmp_path, f"file://{tmp_path}/store")


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path)


@pytest.fixture(params=["native", pytest.param("arrow", marks=pytest.mark.integration)])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read back through Spark's own reader, or through Arrow as where the JVM cannot reach the store."""
    if request.param == "arrow":
        monkeypatch.setattr("airflow_provider.spark.points.reading.readable_by_jvm", lambda spark, path: False)
    return str(request.param)


@pytest.fixture
def own_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hundreds of modules of these tests are no user's. Read for a function that computes its imports, they would
    take seconds.
    """
    from airflow_provider.spark.identity.functions import modules

    monkeypatch.setitem(modules._PINNED, "tests", "airflow_provider")


@pytest.fixture
def module_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder on the path; what was imported from it is forgotten afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__spec__", "")):
            del sys.modules[name]
