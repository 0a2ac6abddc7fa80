"""What a driver and its executors need to have installed, and how the package reaches the executors."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import airflow_provider
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.spark.jvm.executors import is_local
from airflow_provider.spark.jvm.session_settings import all_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)


def needed_packages(event_store: str) -> list[str]:
    """Return the packages that recovery needs beside PySpark on the driver and on every executor."""
    return ["pyarrow", "pandas", "tenacity", *(["boto3"] if event_store.startswith("s3:") else [])]


def missing_packages(packages: list[str]) -> list[str]:
    """Return those of *packages* that cannot be imported in this process."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def require_on_driver(event_store: str) -> None:
    """Make sure that the driver can do its part.

    :raises ConfigurationError: a package is missing
    """
    missing = missing_packages(needed_packages(event_store))
    if missing:
        raise ConfigurationError(
            f"The Spark driver lacks the Python package{'s' if len(missing) > 1 else ''} {', '.join(missing)}.",
            remedy=f"Install with 'pip install {' '.join(missing)}' in the Python that runs the driver "
            "(PYSPARK_DRIVER_PYTHON or PYSPARK_PYTHON), and on all executors.",
        )


def executors_ready(context: RecoveryContext, spark: SparkSession) -> str:
    """Return what the executors of this application lack, or empty text; asks them once per application."""
    application = context.application
    with context.lock:
        if application.lack is None:
            _introduce(context, spark)
            lack = _ask_executors(context, spark)
            if not lack and not is_local(spark):
                lack = _ask_for_the_store(context, spark)
            application.lack = lack
        return application.lack


def _introduce(context: RecoveryContext, spark: SparkSession) -> None:
    spark_context = spark.sparkContext
    context.master.keep_secret(all_settings(spark))
    context.master.application_started(
        spark_context.applicationId, spark_context.uiWebUrl or "", spark_context.defaultParallelism
    )
    if not is_local(spark) and not _is_shipped():
        spark_context.addPyFile(package_zip())  # again is harmless


def _same_python(spark: SparkSession) -> bool:
    """Whether the executors run the driver's own Python; then nothing has to be started to ask it."""
    found = shutil.which(spark.sparkContext.pythonExec)
    if not is_local(spark) or found is None:
        return False
    theirs, ours = Path(found), Path(sys.executable)
    return theirs.parent == ours.parent and theirs.resolve() == ours.resolve()


def _is_shipped() -> bool:
    """Whether this process itself runs from a zip that came with ``--py-files``, which executors have too."""
    return ".zip/" in str(airflow_provider.__file__)


@cache
def package_zip() -> str:
    """Make a zip with the driver's side of this package, for executors that do not have it; return its path.

    Spark serves it to executors from there as long as this process lives.
    """
    root = Path(airflow_provider.__file__).parent
    target = Path(tempfile.mkdtemp(prefix="spark-recovery-")) / "airflow_provider_driver.zip"
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(root / "__init__.py", "airflow_provider/__init__.py")
        for ring in ("core", "storage", "job", "spark"):
            for file in sorted((root / ring).rglob("*.py")):
                archive.write(file, f"airflow_provider/{file.relative_to(root)}")
    return str(target)


def _ask_executors(context: RecoveryContext, spark: SparkSession) -> str:
    packages = needed_packages(context.master.request.event_store)

    def probe(_: Iterable[int]) -> Iterable[str]:
        import importlib.util

        yield from (name for name in packages if importlib.util.find_spec(name) is None)

    missing = missing_packages(packages) if _same_python(spark) else _asked(spark, probe)
    if not missing:
        return ""
    return (
        f"the executors lack the Python package{'s' if len(missing) > 1 else ''} {', '.join(missing)}; install with "
        f"'pip install {' '.join(missing)}' in the executors' Python (PYSPARK_PYTHON)"
    )


def _ask_for_the_store(context: RecoveryContext, spark: SparkSession) -> str:
    """Return why executors on other machines do not reach the store, or do not mean the same one.

    They look for this attempt's claim: one small request each, with the permission that reading partitions needs. A
    store that does not answer is no reason to give up; it may, by the time something is to be stored.
    """
    request, prefix = context.master.request, context.master.prefix
    event_store, options = request.event_store, request.storage.to_mapping()
    epoch, variable = context.master.epoch, INTEGRITY_SECRET

    def probe(_: Iterable[int]) -> Iterable[str]:
        from airflow_provider.core.errors import RecoveryError
        from airflow_provider.core.options import StorageOptions
        from airflow_provider.storage.claims import Claims
        from airflow_provider.storage.uris import open_store

        try:
            claim = Claims(open_store(event_store, StorageOptions.from_mapping(options)), prefix).get(epoch)
            if claim is None:
                yield (
                    f"the executors do not see in {event_store} what the driver has stored there; a file:// event "
                    "store must be one directory that all machines share"
                )
            elif not claim.owner:
                yield (
                    "the executors cannot verify what the driver has stored; give their machines the driver's "
                    f"{variable} in the environment"
                )
        except RecoveryError as error:
            if not error.retryable:
                yield f"the executors cannot reach the event store: {error}"

    return next(iter(_asked(spark, probe)), "")


def _asked(spark: SparkSession, probe: Callable[[Iterable[int]], Iterable[str]]) -> list[str]:
    """Run *probe* on as many cores as there are, up to 64; return its different answers."""
    context = spark.sparkContext
    spread = max(1, min(context.defaultParallelism, 64))
    return sorted(set(context.parallelize(range(spread), spread).mapPartitions(probe).collect()))
