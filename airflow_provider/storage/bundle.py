"""Build what travels with a job: one zip for ``--py-files`` with the driver's side of this package and its
dependencies.

Built from installed files, by path: nothing of the Spark side is imported. The same files give the same bytes, and the
zip is kept under its digest, so each machine builds it once. The packages that an ``s3://`` store needs are nested in
it as a zip from which nothing can be imported; ``dependencies`` decides on arrival whether to use them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import airflow_provider
from airflow_provider.storage.private_files import hold, private_folder, write_whole

DEPENDENCIES = "dependencies.zip"
"""Name of the inner zip, beside this module."""
_RINGS = ("core", "storage", "job", "spark")
_SUFFIXES = (".java", ".py")
_PACKAGES = ("botocore", "dateutil", "jmespath", "six", "tenacity", "urllib3")
_SERVICES = ("s3", "signin", "sso", "sso-oidc", "sts")
"""S3, and what botocore asks for credentials; the data of all other services stays behind."""
_MODELS = ("endpoint-rule-set", "paginators", "service", "waiters")
_BOTOCORES_DATA = (
    "cacert.pem",
    "data/*.json",
    *(f"data/{service}/*/{model}-*" for service in _SERVICES for model in _MODELS),
)
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build_package(folder: Path | None = None) -> Path:
    """Return the zip, building it if it is missing.

    Several processes may do so at once, and a cleaner of temporary files may have removed it: the zip is put in place
    atomically and always has the same bytes.

    :param folder: folder that keeps the zips; by default this user's own folder in the machine's temporary directory
    """
    own, others = dict(_own_files()), dict(_dependencies())
    digest = hashlib.sha256()
    for name, content in (*own.items(), *others.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    # Held by the process that started the job, and by a driver that runs from it: executors fetch it while the job
    # runs.
    target = hold((folder or private_folder()) / digest.hexdigest()[:24]) / "airflow_provider_driver.zip"
    if not target.is_file():
        write_whole(target, _zipped({**own, f"airflow_provider/storage/{DEPENDENCIES}": _zipped(others)}))
    return target


def _own_files() -> Iterator[tuple[str, bytes]]:
    root = Path(airflow_provider.__file__).parent
    rings = (path for ring in _RINGS for path in sorted((root / ring).rglob("*")) if path.suffix in _SUFFIXES)
    for path in (root / "__init__.py", *rings):
        yield f"airflow_provider/{path.relative_to(root).as_posix()}", path.read_bytes()


def _dependencies() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the packages that an ``s3://`` store needs and that are installed here."""
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        module = Path(spec.origin)
        if not spec.submodule_search_locations:
            yield module.name, module.read_bytes()
            continue
        patterns = ("**/*.py", *(_BOTOCORES_DATA if name == "botocore" else ()))
        for path in sorted({path for pattern in patterns for path in module.parent.glob(pattern)}):
            yield path.relative_to(module.parents[1]).as_posix(), path.read_bytes()


def _zipped(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return target.getvalue()
