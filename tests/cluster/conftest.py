"""A standalone cluster for the tests of one module, and a Python that lacks this package."""

from __future__ import annotations

import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow_side.conftest import airflow_home, connect
from tests.cluster.orders import write_orders
from tests.support.s3_gateway import S3Server
from tests.support.standalone import StandaloneCluster, standalone_cluster

__all__ = ["airflow_home", "connect"]  # fixtures


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with all that is installed beside this package, but not the package: as on a cluster's machines."""
    folder = tmp_path_factory.mktemp("python") / "venv"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    # A path in a .pth file is searched for modules, but .pth files in it (the editable install) are not followed.
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(folder / "bin" / "python")


@pytest.fixture(scope="session")
def plain_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with its standard library and nothing else, as in Spark's own images."""
    folder = tmp_path_factory.mktemp("plain") / "venv"
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the jobs shuffle."""
    return write_orders(tmp_path_factory.mktemp("orders"))


@pytest.fixture(scope="module")
def role(tmp_path_factory: pytest.TempPathFactory, moto: S3Server) -> dict[str, str]:
    """What stands for the role of the cluster's machines: credentials that their processes find by themselves."""
    file = tmp_path_factory.mktemp("role") / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {moto.access_key}\naws_secret_access_key = {moto.secret_key}\n")
    return {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory, role: dict[str, str]) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), environment=role) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: StandaloneCluster) -> StandaloneCluster:
    """A master and two idle workers; workers that a test has killed are replaced for the next."""
    running_cluster.restore(workers=2)
    return running_cluster
