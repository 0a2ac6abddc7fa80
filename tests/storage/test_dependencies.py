"""What an ``s3://`` store needs comes with the job, and is used only where a machine has none of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from airflow_provider.storage import bundle
from airflow_provider.storage.bundle import build_package
from airflow_provider.storage.private_files import private_folder
from tests.support.s3_gateway import S3Server

pytestmark = pytest.mark.process

SIZE = 3_000_000
"""Bytes that travel with a job at most."""

PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.uris import open_store
store = open_store(sys.argv[2], StorageOptions(endpoint_url=sys.argv[3], addressing_style="path"))
check_store(store)
import botocore, tenacity
print(botocore.__file__, tenacity.__file__)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_package(tmp_path_factory.mktemp("package"))


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The folder for temporary files of the machine to which the package has come."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.fixture
def private(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder in it, as the machine's processes will look for it."""
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return private_folder()


@pytest.fixture
def arguments(package: Path, moto: S3Server) -> list[str]:
    return [str(package), f"s3://{moto.create_bucket('dependencies')}/{uuid.uuid4().hex}", moto.endpoint]


def bare(program: str, temporary: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program in a Python that has its standard library and nothing else."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program, *arguments],
        env={**os.environ, "TMPDIR": str(temporary), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 0, text
    return text.strip()


def unpacked(temporary: Path) -> list[Path]:
    return [*temporary.glob("*/dependencies-*")]


def test_a_bare_python_reaches_s3(temporary: Path, arguments: list[str]) -> None:
    """Standard library and the package that comes with a job: the store on S3 does all that recovery needs."""
    modules = said(bare(PROGRAM, temporary, *arguments)).split()
    (folder,) = unpacked(temporary)
    assert all(Path(module).is_relative_to(folder) for module in modules)


def test_a_role_is_found_by_a_bare_python(temporary: Path, arguments: list[str], moto: S3Server) -> None:
    """By a web identity, as Kubernetes gives one: that needs botocore's data of STS."""
    token = temporary.parent / "token"
    token.write_text("a web identity")
    role = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/of-the-cluster",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ENDPOINT_URL_STS": moto.endpoint,
    }
    assert said(bare(PROGRAM, temporary, *arguments, **role)).split()


def test_every_service_of_the_credential_chain_is_there(package: Path, temporary: Path) -> None:
    """A client of each can be made: role, web identity, single sign-on."""
    program = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from airflow_provider.storage.dependencies import provide_dependencies; provide_dependencies()\n"
        "import botocore.session, botocore.httpsession\n"
        "for name in sys.argv[2:]: botocore.session.get_session().create_client(name, 'us-east-1')\n"
        "print(open(botocore.httpsession.DEFAULT_CA_BUNDLE).read().count('BEGIN CERTIFICATE') > 50)"
    )
    assert said(bare(program, temporary, str(package), *bundle._SERVICES)) == "True"


def test_the_package_is_small(package: Path) -> None:
    """All that travels with a job has less than 3 MB, none of it compiled for one machine."""
    assert package.stat().st_size < SIZE
    with zipfile.ZipFile(package) as outer, outer.open(f"airflow_provider/storage/{bundle.DEPENDENCIES}") as inner:
        names = zipfile.ZipFile(inner).namelist()
    assert {name.partition("/")[0].removesuffix(".py") for name in names} == set(bundle._PACKAGES)
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def installed(folder: Path, *packages: str) -> str:
    """Make a folder in which *packages* are installed; return the line that puts it on the path."""
    import botocore

    site = Path(botocore.__file__).parents[1]
    folder.mkdir()
    for name in packages:
        file = name if (site / name).exists() else f"{name}.py"
        (folder / file).symlink_to(site / file)
    return f"import sys; sys.path.append({str(folder)!r})\n"


AWS = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six", "urllib3")


def test_nothing_is_used_where_the_machine_has_its_own(temporary: Path, arguments: list[str]) -> None:
    """Its boto3 and botocore are imported, by recovery and by the user's code; nothing is unpacked."""
    own = installed(temporary.parent / "own", *AWS, "tenacity")
    user = "import boto3; print(boto3.__file__)"
    modules = said(bare(own + PROGRAM + user, temporary, *arguments)).split()
    assert all(Path(module).is_relative_to(temporary.parent / "own") for module in modules)
    assert [*temporary.iterdir()] == []


def test_only_what_is_missing_is_used(temporary: Path, arguments: list[str]) -> None:
    """With a botocore and without tenacity, botocore is the machine's, with all that it needs."""
    own = installed(temporary.parent / "own", *AWS)
    user = "import urllib3; print(urllib3.__file__)"
    modules = said(bare(own + PROGRAM + user, temporary, *arguments)).split()
    folders = [folder for module in modules for folder in (temporary.parent / "own", *unpacked(temporary))
               if Path(module).is_relative_to(folder)]  # fmt: skip
    assert folders == [temporary.parent / "own", *unpacked(temporary), temporary.parent / "own"]


def test_an_old_botocore_of_the_machine_is_named(temporary: Path, arguments: list[str]) -> None:
    """It is not replaced behind the user's back: one line says what to do."""
    own = installed(temporary.parent / "own", *AWS, "tenacity")
    old = (
        "import botocore, botocore.config; botocore.__version__ = '1.34.0'\n"
        "for name in [*botocore.config.Config.OPTION_DEFAULTS]:\n"
        "    if name.endswith('_checksum_calculation'): del botocore.config.Config.OPTION_DEFAULTS[name]\n"
    )
    line = bare(own + old + PROGRAM, temporary, *arguments).communicate(timeout=60)[0].splitlines()[-1]
    assert "ConfigurationError: This machine's botocore 1.34.0 is too old" in line
    assert "pip install 'botocore>=1.36'" in line


def test_files_need_nothing(package: Path, temporary: Path) -> None:
    """A store of files unpacks nothing, in a Python that has its standard library only."""
    store = f"file://{temporary.parent}/store"
    program = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "import airflow_provider.job.job_master, airflow_provider.spark.runner\n"
        "from airflow_provider.storage.checks import check_store\n"
        "from airflow_provider.storage.uris import open_store; check_store(open_store(sys.argv[2]))"
    )
    said(bare(program, temporary, str(package), store))
    assert [*temporary.iterdir()] == []


@pytest.mark.integration
def test_many_processes_unpack_at_once(temporary: Path, arguments: list[str]) -> None:
    """As the Python workers of a machine do: each works, and what they leave is whole."""
    processes = [bare(PROGRAM, temporary, *arguments) for _ in range(6)]
    assert len({said(process) for process in processes}) == 1
    (folder,) = unpacked(temporary)
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert {name for name in files if "__pycache__" not in name} - {".used"} == set(contents(Path(arguments[0])))


def contents(package: Path) -> Mapping[str, bytes]:
    with zipfile.ZipFile(package) as outer, outer.open(f"airflow_provider/storage/{bundle.DEPENDENCIES}") as file:
        inner = zipfile.ZipFile(file)
        return {name: inner.read(name) for name in inner.namelist()}


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "cut off": lambda file: os.truncate(file, 10),
    "changed": lambda file: file.write_bytes(b"#" * file.stat().st_size),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_written_anew(
    temporary: Path, private: Path, arguments: list[str], damage: Callable[[Path], object]
) -> None:
    """Cleaners of temporary files, and full disks, leave parts; no part is used as it is."""
    said(bare(PROGRAM, temporary, *arguments))
    (folder,) = private.iterdir()
    for name in ("botocore/data/s3/2006-03-01/service-2.json.gz", "tenacity/__init__.py"):
        damage(folder / name)
    said(bare(PROGRAM, temporary, *arguments))
    assert all((folder / name).read_bytes() == content for name, content in contents(Path(arguments[0])).items())


def open_to_others(planted: Path) -> None:
    planted.chmod(0o777)


def a_link(planted: Path) -> None:
    planted.symlink_to(planted.rename(planted.parent / "elsewhere"))


def of_another_user(planted: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a folder away")
    os.chown(planted, 12345, 12345)


@pytest.mark.few(1)
@pytest.mark.parametrize("plant", [open_to_others, a_link, of_another_user])
def test_a_planted_folder_is_not_used(
    temporary: Path, private: Path, arguments: list[str], plant: Callable[[Path], None]
) -> None:
    """In a folder to which others can write everything would look right when it is checked, and be replaced then."""
    said(bare(PROGRAM, temporary, *arguments))
    plant(private)
    modules = said(bare(PROGRAM, temporary, *arguments)).split()
    assert not any(Path(module).is_relative_to(folder) for module in modules for folder in (private, private.resolve()))


def test_without_room_it_says_so(temporary: Path, arguments: list[str]) -> None:
    """A disk that does not take the packages costs one clear line, which says what to do."""
    no_room = "import tempfile; tempfile.tempdir = '/proc'\n"
    line = bare(no_room + PROGRAM, temporary, *arguments).communicate(timeout=60)[0].splitlines()[-1]
    assert "ConfigurationError: The packages that came with the job cannot be unpacked" in line
    assert "TMPDIR" in line
