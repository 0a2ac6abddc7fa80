"""From a URI to a store, and every way in which a URI can be wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.files import file_uri
from airflow_provider.storage.uris import open_store, parse_file_uri, parse_s3_uri


@pytest.mark.parametrize(
    ("uri", "bucket", "prefix"),
    [
        ("s3://bucket/prefix", "bucket", "prefix"),
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my.bucket-1//a///b//", "my.bucket-1", "a/b"),
        ("s3://bucket/with space/and%20percent", "bucket", "with space/and%20percent"),
    ],
)
def test_s3_uris_are_read_as_the_aws_tools_read_them(uri: str, bucket: str, prefix: str) -> None:
    """Slashes are tidied up, everything else in the prefix is literal."""
    assert parse_s3_uri(uri) == (bucket, prefix)


def test_the_normalised_s3_uri_is_shown() -> None:
    """A store names its root the one way, so that two spellings are seen to be one place."""
    assert open_store("s3://bucket//a/b/", StorageOptions(region="eu-west-1")).uri == "s3://bucket/a/b"
    assert open_store("s3://bucket/", StorageOptions(region="eu-west-1")).uri == "s3://bucket"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///data/store", "/data/store"),
        ("file:///data//store/", "/data/store"),
        ("file://localhost/data", "/data"),
        ("file:///with%20space/100%25/%C3%A4", "/with space/100%/ä"),
        ("file:///plain space/ä", "/plain space/ä"),
        ("file:///question%3F/hash%23", "/question?/hash#"),
    ],
)
def test_file_uris_name_absolute_paths(uri: str, path: str) -> None:
    """Percent-encoding is undone; what needs none may stand as it is."""
    assert parse_file_uri(uri) == Path(path)


_NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: name not in {".", ".."})


@given(st.lists(_NAMES, min_size=1, max_size=4))
def test_any_path_survives_its_uri(names: list[str]) -> None:
    """file_uri writes what parse_file_uri reads, whatever characters a path has."""
    path = Path("/", *names)
    assert parse_file_uri(file_uri(path)) == path


@pytest.mark.parametrize(
    ("uri", "says", "remedy"),
    [
        ("", "''", "Write s3://bucket/prefix or file:///absolute/path"),
        ("bucket/prefix", "'bucket/prefix'", "Write s3://bucket/prefix or file:///absolute/path"),
        ("/data/my store", "'/data/my store'", "Write file:///data/my%20store"),
        ("file:/data/store", "'file:/data/store'", "Write file:///data/store"),
        ("file:data", "'file:data'", "must be absolute"),
        ("file://data/store", "'file://data/store'", "three slashes"),
        ("file://", "names no directory", "file:///absolute/path"),
        ("file:///", "names no directory", "file:///absolute/path"),
        ("file:///a/../b", "'file:///a/../b'", "Write the path out"),
        ("file:///a/%2e%2e/b", "'..'", "Write the path out"),
        ("file:///a%00b", "'file:///a%00b'", "Write the path out"),
        ("file:///a?b", "query", "%3F"),
        ("file:///a#b", "fragment", "%23"),
        ("s3a://bucket/prefix", "'s3a://bucket/prefix'", "Write s3://bucket/prefix"),
        ("s3n://bucket/prefix", "'s3n://bucket/prefix'", "Write s3://bucket/prefix"),
        ("S3://bucket/prefix", "'S3://bucket/prefix'", "Write s3://bucket/prefix"),
        ("s3:/bucket/prefix", "'s3:/bucket/prefix'", "Write s3://bucket/prefix or"),
        ("gs://bucket/prefix", "'gs://bucket/prefix'", "Write s3://bucket/prefix or"),
        ("hdfs://host:8020/x", "'hdfs://host:8020/x'", "Write s3://bucket/prefix or"),
        ("s3://", "names no bucket", "s3://bucket/prefix"),
        ("s3:///prefix", "names no bucket", "s3://bucket/prefix"),
        ("s3://b/prefix", "the bucket 'b'", "at least three"),
        ("s3://my bucket/prefix", "'my bucket'", "letters, digits"),
        ("s3://bucket/a/../b", "'..'", "Write the path out"),
        ("s3://bucket/a?region=eu-west-1", "query", "options of their own"),
    ],
)
def test_a_malformed_uri_is_named_with_the_right_form(uri: str, says: str, remedy: str) -> None:
    """The error repeats the URI and shows what to write instead."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri)
    assert says in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    "uri", ["s3://KEYID:hunter2@bucket/prefix", "https://user:hunter2@host/bucket", "s3://host:9000/hunter2"]
)
def test_a_secret_in_a_uri_is_never_repeated(uri: str) -> None:
    """Who writes credentials into the URI is told so without seeing them in a log."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri)
    assert "hunter2" not in str(caught.value)
    assert "s3://bucket/prefix" in caught.value.remedy


_BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.uris import open_store
store = open_store(f"file://{sys.argv[2]}/store")
check_store(store)
try:
    open_store("s3://bucket/prefix")
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.parametrize("package", ["botocore", "tenacity"])
def test_files_need_no_package_and_s3_says_which_is_missing(package: str, tmp_path: Path) -> None:
    """Where neither the machine nor the job has one, file:// works and s3:// names it and how to install it."""
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED, package, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert f"the Python package {package!r} is not installed" in done.stdout
    assert "pip install botocore tenacity" in done.stdout


def test_botocore_is_imported_only_for_s3(tmp_path: Path) -> None:
    """A driver with a file:// store loads neither botocore nor tenacity."""
    program = (
        "import sys; from airflow_provider.storage.uris import open_store; from airflow_provider.storage.checks import"
        " check_store; check_store(open_store(sys.argv[1]));"
        "import airflow_provider.storage.event_writer, airflow_provider.storage.partition_store,"
        " airflow_provider.storage.heartbeat, airflow_provider.job.job_master;"
        "print({'boto3', 'botocore', 'tenacity'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"file://{tmp_path}/s"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
