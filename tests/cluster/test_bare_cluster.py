"""A cluster that has Spark and Python and nothing else: no boto3, tenacity, pyarrow, pandas, on driver and executors.

Drivers are started by ``spark-submit`` with what the operator ships.
"""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from airflow_provider.airflow.driver_bundle import build_bundle
from airflow_provider.core import faults
from airflow_provider.core.partitions import WRITTEN
from tests.cluster.orders import AUTO, check_rows, killed_and_retried, settings
from tests.spark.s3_driver import s3a_settings
from tests.support.driver import SPARK_SETTINGS, DriverHarness
from tests.support.jars import SPARK
from tests.support.s3_gateway import S3Server
from tests.support.sparks import spark_home
from tests.support.standalone import StandaloneCluster, standalone_cluster

pytestmark = [pytest.mark.process, pytest.mark.integration]

JOBS = Path(__file__).parent / "jobs"
HOME = Path(pyspark.__file__).parent


@dataclass
class SubmittedDriver(DriverHarness):
    """A driver that ``spark-submit`` starts with the bundle, in a Python of its own."""

    home: Path = HOME

    def command(self, script: str | Path, *arguments: str, options: Mapping[str, str] | None = None) -> list[str]:
        bundle = build_bundle(self.folder)
        settings = {**SPARK_SETTINGS, **self.settings}
        conf = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
        run = super().command(script, *arguments, options=options)
        request = run[run.index("run") + 1 :]
        return [
            str(self.home / "bin/spark-submit"),
            *conf,
            "--py-files",
            str(bundle.package),
            str(bundle.runner),
            *request,
        ]

    def env(self, fault: str = "", **extra: str) -> dict[str, str]:
        return {**super().env(fault, **extra), "SPARK_HOME": str(self.home), "PYSPARK_SUBMIT_ARGS": ""}


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for temporary files of all of the cluster's machines."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def machines(plain_python: str, role: dict[str, str], temporary: Path) -> dict[str, str]:
    return {**role, "PYSPARK_PYTHON": plain_python, "TMPDIR": str(temporary)}


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory, machines: dict[str, str]) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), environment=machines) as cluster:
        yield cluster


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.walk)])
def driver(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: StandaloneCluster, machines: dict[str, str], moto: S3Server
) -> DriverHarness:
    """A driver on the bare cluster; its event store is on files or on S3."""
    driver = SubmittedDriver(tmp_path, f"file://{tmp_path}/store", environment=machines, settings=settings(cluster))
    return on_s3(driver, moto) if request.param == "s3" else driver


def on_s3(driver: DriverHarness, server: S3Server) -> DriverHarness:
    driver.event_store = f"s3://{server.create_bucket('bare-cluster')}/{uuid.uuid4().hex}"
    driver.storage = {"endpoint-url": server.endpoint, "addressing-style": "path"}
    return driver


@pytest.fixture(autouse=True)
def credentials(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what the tests themselves list; drivers and executors find those of their machines' role."""
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)


def test_shuffles_of_a_killed_driver_are_put_back(driver: DriverHarness, orders: Path, temporary: Path) -> None:
    """In auto mode, on a store of files or on S3: the retry computes only what is missing, and no task fails.

    What came with the job is unpacked where S3 asks for it, once for all processes; nobody's boto3 appears.
    """
    job = killed_and_retried(driver, orders, JOBS / "no_packages.py", killed=128 + signal.SIGKILL)
    assert job.put_back in job.second.log
    assert "FetchFailed" not in job.second.log
    assert " WARNING spark-recovery: " not in job.first.log + job.second.log
    assert set(check_rows(orders, job.target)["lacks"].to_pylist()) == {"boto3 pandas pyarrow"}
    assert "DRIVER lacks boto3 pandas pyarrow" in job.second.log
    on_s3 = driver.event_store.startswith("s3:")
    assert len([*temporary.glob("airflow-provider-spark-recovery-*/dependencies-*")]) == on_s3


@pytest.mark.walk
@pytest.mark.parametrize("driver", ["file"], indirect=True)
def test_a_checkpoint_of_a_killed_driver_is_reused(driver: DriverHarness, orders: Path) -> None:
    """On files Spark's own writer stores it, and its own reader reads it: no package is missed, nothing warned of."""
    target = driver.folder / "out"
    first = driver.run(JOBS / "one_checkpoint.py", str(orders), str(target), fault=faults.AFTER_VERTEX_FINISHED)
    assert first.code == 128 + signal.SIGKILL, first.log
    second = driver.run(JOBS / "one_checkpoint.py", str(orders), str(target))
    assert second.code == 0, second.log
    check_rows(orders, target)
    assert not [name for name in second.tasks if name.startswith("checkpoint totals")]
    assert " WARNING spark-recovery: " not in first.log + second.log


def test_a_checkpoint_of_a_killed_driver_is_reused_on_s3(
    tmp_path: Path, orders: Path, moto: S3Server, machines: dict[str, str]
) -> None:
    """On S3 that Spark 3.5 reaches by ``s3a://``: the same, with what the cluster has and nothing installed."""
    spark = {**machines, "SPARK_HOME": str(spark_home(SPARK))}
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster", environment=spark) as cluster:
        driver = SubmittedDriver(tmp_path, "", environment=machines, home=spark_home(SPARK))
        cut = {"spark.sql.shuffle.partitions": "4", "spark.sql.adaptive.coalescePartitions.enabled": "false"}
        driver.settings = {**settings(cluster), **s3a_settings(moto), **cut}
        on_s3(driver, moto)
        arguments = [str(orders), str(tmp_path / "out")]
        first = driver.run(JOBS / "one_checkpoint.py", *arguments, fault=f"{faults.AFTER_PARTITION_EVENT}@2")
        assert first.code == 128 + signal.SIGKILL, first.log
        stored = driver.partitions("totals")
        assert stored
        assert {each.suffix for each in stored} == {WRITTEN}
        second = driver.run(JOBS / "one_checkpoint.py", *arguments)
        assert second.code == 0, second.log
    check_rows(orders, tmp_path / "out")
    (said,) = re.findall(r"checkpoint 'totals': 4 partitions, (\d) reused, (\d) to compute", second.log)
    reused, computed = map(int, said)
    assert reused >= len(stored)  # what the first driver's tasks had committed counts, too
    assert reused + computed == 4
    assert f"Reused {reused} partitions" in second.log
    assert " WARNING spark-recovery: " not in first.log + second.log


@pytest.mark.walk
@pytest.mark.parametrize("driver", ["s3"], indirect=True)
def test_a_checkpoint_on_s3_is_computed_the_ordinary_way(driver: DriverHarness, orders: Path) -> None:
    """Where Spark has no ``s3a://`` it needs pyarrow and pandas: one line names them and the command that installs
    them, and the job succeeds.
    """
    done = driver.run(JOBS / "one_checkpoint.py", str(orders), str(driver.folder / "out"))
    assert done.code == 0, done.log
    check_rows(orders, driver.folder / "out")
    (warning,) = [line for line in done.log.splitlines() if " WARNING spark-recovery: " in line]
    assert "checkpoint 'totals' is not stored; it is computed the ordinary way: the driver lacks" in warning
    assert "pip install pyarrow pandas" in warning


def test_executors_get_the_package_where_only_the_script_names_the_master(
    tmp_path: Path, cluster: StandaloneCluster, machines: dict[str, str], orders: Path, moto: S3Server
) -> None:
    """``spark-recovery run`` learns of the cluster from the session; map outputs are stored on S3 all the same."""
    driver = DriverHarness(tmp_path, "", environment=machines, settings=settings(cluster) | {"spark.master": "local"})
    arguments = [str(orders), str(tmp_path / "out"), str(tmp_path / "gate"), cluster.url]
    done = on_s3(driver, moto).run(
        JOBS / "no_packages.py", *arguments, fault=f"{faults.AFTER_PARTITION_EVENT}@1", options=AUTO
    )
    assert done.code == -signal.SIGKILL, done.log
    assert driver.partitions("shuffle~28customer~29")
