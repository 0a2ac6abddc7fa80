"""What a driver and its executors need to have installed, and how the package reaches the executors."""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import airflow_provider
from airflow_provider.recovery.errors import ConfigurationError

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
    application = spark.sparkContext.applicationId
    with context.lock:
        if application not in context.executors_ready:
            _introduce(context, spark)
            context.executors_ready[application] = _ask_executors(context, spark)
        return context.executors_ready[application]


def _introduce(context: RecoveryContext, spark: SparkSession) -> None:
    spark_context = spark.sparkContext
    context.master.application_started(
        spark_context.applicationId, spark_context.uiWebUrl or "", spark_context.defaultParallelism
    )
    if not str(spark_context.master).startswith("local") and not _is_shipped():
        spark_context.addPyFile(str(_package_zip()))


def _is_shipped() -> bool:
    """Whether this process itself runs from a zip that came with ``--py-files``, which executors have too."""
    return ".zip/" in str(airflow_provider.__file__)


def _package_zip() -> Path:
    root = Path(airflow_provider.__file__).parent
    target = Path(tempfile.mkdtemp(prefix="spark-recovery-")) / "airflow_provider_driver.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(root / "__init__.py", "airflow_provider/__init__.py")
        for ring in ("recovery", "storage", "spark"):
            for file in sorted((root / ring).rglob("*.py")):
                archive.write(file, f"airflow_provider/{file.relative_to(root)}")
    return target


def _ask_executors(context: RecoveryContext, spark: SparkSession) -> str:
    packages = needed_packages(context.master.request.event_store)

    def probe(_: Iterable[int]) -> Iterable[str]:
        import importlib.util

        yield from (name for name in packages if importlib.util.find_spec(name) is None)

    spark_context = spark.sparkContext
    spread = max(1, min(spark_context.defaultParallelism, 64))
    missing = sorted(set(spark_context.parallelize(range(spread), spread).mapPartitions(probe).collect()))
    if not missing:
        return ""
    return (
        f"the executors lack the Python package{'s' if len(missing) > 1 else ''} {', '.join(missing)}; install with "
        f"'pip install {' '.join(missing)}' in the executors' Python (PYSPARK_PYTHON)"
    )
