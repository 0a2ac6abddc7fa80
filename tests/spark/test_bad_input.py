"""Whatever is wrong with the input, ``spark-recovery`` says so in one line that names the thing and the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.core.run_request import EXIT_CONFIGURATION
from tests.spark.killed_jobs import expected, result
from tests.support.blocked_imports import blocked_imports, python_without
from tests.support.driver import DriverHarness
from tests.support.s3_gateway import S3Server

pytestmark = [pytest.mark.process, pytest.mark.integration]

SCRIPT = "assert False, 'the script must not run'\n"
CHECKPOINT = """\
import sys
from pyspark.sql import SparkSession
from airflow_provider.spark import checkpoint
checkpoint(SparkSession.builder.getOrCreate().range(10), "ten").write.parquet(sys.argv[1])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(SCRIPT)
    return path


def refusal(driver: DriverHarness, script: str | Path, *arguments: str, **options: str) -> str:
    """The one line with which a run is refused before anything was started."""
    given = {name.replace("_", "-"): value for name, value in options.items()}
    outcome = driver.run(Path(script), *arguments, options=given)
    assert outcome.code == EXIT_CONFIGURATION, outcome.log
    (line,) = [line for line in outcome.log.splitlines() if line]
    return line


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3a://bucket/prefix", "Write s3://bucket/prefix."),
        ("gs://bucket/prefix", "Write s3://bucket/prefix or file:///absolute/path."),
        ("/var/lib/store", "Write file:///var/lib/store."),
        ("file://var/lib/store", "Write file:///var/lib/store"),
        ("s3://", "s3://bucket/prefix"),
    ],
)
def test_a_malformed_uri(driver: DriverHarness, script: Path, uri: str, said: str) -> None:
    """A URI that is not understood is repeated, with the right form."""
    driver.event_store = uri
    line = refusal(driver, script)
    assert uri in line
    assert said in line


def test_an_unwritable_path(driver: DriverHarness, script: Path) -> None:
    """A directory that cannot be made is named."""
    driver.event_store = f"file://{script}/below"
    assert str(script) in refusal(driver, script)


def test_a_missing_bucket(driver: DriverHarness, script: Path, moto: S3Server) -> None:
    """A bucket that does not exist is named, with how to create it."""
    driver.event_store = "s3://no-such-bucket/prefix"
    driver.environment = moto.environment
    line = refusal(driver, script, endpoint_url=moto.endpoint)
    assert "'no-such-bucket' does not exist" in line
    assert "aws s3 mb s3://no-such-bucket" in line


@pytest.mark.parametrize("wrong", [{"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_ACCESS_KEY_ID": "unknown"}])
def test_wrong_credentials(driver: DriverHarness, script: Path, s3_gateway: S3Server, wrong: dict[str, str]) -> None:
    """Credentials that the store refuses lead to one line that says what to correct, and never holds a secret."""
    driver.event_store = f"s3://{s3_gateway.create_bucket('bad-input')}/prefix"
    driver.environment = {**s3_gateway.environment, **wrong}
    line = refusal(driver, script, endpoint_url=s3_gateway.endpoint)
    assert "Access denied" in line
    assert "access key" in line
    assert s3_gateway.secret_key not in line
    assert "wrong" not in line.replace("configured wrongly", "")


def test_no_credentials(driver: DriverHarness, script: Path, moto: S3Server) -> None:
    """Without any credentials the ways to give some are listed."""
    driver.event_store = f"s3://{moto.create_bucket('bad-input')}/prefix"
    nowhere = str(driver.folder / "none")
    driver.environment = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": nowhere,
        "AWS_CONFIG_FILE": nowhere,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
    }
    assert "AWS_ACCESS_KEY_ID" in refusal(driver, script, endpoint_url=moto.endpoint)


def test_an_unknown_profile(driver: DriverHarness, script: Path) -> None:
    """A profile that is in no AWS configuration is named."""
    driver.event_store = "s3://bucket/prefix"
    driver.environment = {"AWS_PROFILE": "no-such-profile"}
    assert "no-such-profile" in refusal(driver, script)


def test_a_missing_application(driver: DriverHarness) -> None:
    """An application that is nowhere is named."""
    line = refusal(driver, "/nowhere/at/all.py")
    assert "'/nowhere/at/all.py' does not exist" in line
    assert not (driver.folder / "store").exists()


def test_a_jvm_application(driver: DriverHarness) -> None:
    """A jar is refused with what to use in its place."""
    jar = driver.folder / "app.jar"
    jar.touch()
    line = refusal(driver, jar)
    assert "app.jar" in line
    assert "SparkSubmitOperator" in line


def test_an_unknown_option(driver: DriverHarness, script: Path) -> None:
    """An option that does not exist is named."""
    assert "--nonsense" in refusal(driver, script, nonsense="3")


@pytest.mark.parametrize("value", ["soon", "0s", "-3s", "10 parsecs"])
def test_a_bad_duration(driver: DriverHarness, script: Path, value: str) -> None:
    """A duration that cannot be read is repeated, with its option and an example."""
    line = refusal(driver, script, **{"previous-worker-recovery-timeout": value})
    assert "previous_worker_recovery_timeout" in line or "previous-worker-recovery-timeout" in line


@pytest.mark.parametrize("package", ["botocore", "tenacity"])
def test_a_package_missing_on_the_driver(driver: DriverHarness, script: Path, moto: S3Server, package: str) -> None:
    """A package that the store needs, and the driver's Python lacks, is named, with the command that installs it."""
    driver.event_store = f"s3://{moto.create_bucket('bad-input')}/prefix"
    driver.environment = {**moto.environment, **blocked_imports(driver.folder / "blocked", package)}
    line = refusal(driver, script, endpoint_url=moto.endpoint)
    assert f"the Python package {package!r} is not installed" in line
    assert "pip install botocore tenacity" in line


def test_a_package_missing_on_the_executors(driver: DriverHarness, orders: Path, moto: S3Server) -> None:
    """Where the executors lack what the store needs, checkpoints warn of it, name package and remedy, and are computed
    the ordinary way.
    """
    driver.event_store = f"s3://{moto.create_bucket('bad-input')}/{driver.folder.name}"
    driver.environment = {
        **moto.environment,
        "PYSPARK_PYTHON": str(python_without(driver.folder / "blocked", "botocore")),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    endpoint = {"endpoint-url": moto.endpoint, "addressing-style": "path"}
    outcome = driver.run("two_vertices.py", str(orders), str(driver.folder / "out"), options=endpoint)
    assert outcome.code == 0, outcome.log
    assert result(driver.folder / "out") == expected(orders)
    warnings = [line for line in outcome.log.splitlines() if " WARNING spark-recovery: " in line]
    assert len(warnings) == 2, outcome.log  # one for each checkpoint
    assert all("the Python package 'botocore' is not installed. Install botocore" in line for line in warnings)
    assert "Traceback" not in outcome.log


def test_partitions_cannot_be_stored_by_the_executors(driver: DriverHarness) -> None:
    """Where the executors lack pyarrow, a checkpoint that is sealed, which Spark's own writer cannot do, warns of it,
    once, and is computed the ordinary way.
    """
    app, target = driver.folder / "app.py", driver.folder / "out"
    app.write_text(CHECKPOINT)
    driver.environment = {
        "PYSPARK_PYTHON": str(python_without(driver.folder / "blocked", "pyarrow")),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        INTEGRITY_SECRET: "5ea1" * 16,
    }
    outcome = driver.run(app, str(target))
    assert outcome.code == 0, outcome.log
    assert sorted(pq.read_table(target)["id"].to_pylist()) == [*range(10)]
    (warning,) = [line for line in outcome.log.splitlines() if " WARNING spark-recovery: " in line]
    assert "the executors lack the Python package pyarrow; install with 'pip install pyarrow'" in warning


def test_inspecting_an_unknown_job(driver: DriverHarness) -> None:
    """A job that nobody has ever run is named, and the store is not created by looking."""
    store = ["--event-store", driver.event_store, "--job-id", "never/run"]
    command = [sys.executable, "-m", "airflow_provider.cli", "inspect", *store]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == EXIT_CONFIGURATION
    (line,) = done.stderr.splitlines()
    assert "'never/run'" in line
    assert driver.event_store in line
    assert not (driver.folder / "store").exists()
