"""Prepare executors: ship this package to them, and check that they have what storing partitions needs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import airflow_provider
from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.spark.jvm.executors import is_local
from airflow_provider.spark.jvm.session_settings import all_settings
from airflow_provider.storage.bundle import build_package
from airflow_provider.storage.files import FileObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider.spark.context import RecoveryContext

_FOR_ARROW = ("pyarrow", "pandas")
"""Packages that reading and writing partitions through Arrow needs besides PySpark; nothing else in recovery does."""


def executors_ready(context: RecoveryContext, spark: SparkSession, *, through_arrow: bool) -> str:
    """Return what this application lacks to store partitions, or empty text. Asks the executors once for each way.

    :param through_arrow: whether Python stores them rather than Spark's own writer
    """
    lacks = context.application.lacks
    with context.lock:
        if not lacks:
            spark_context = spark.sparkContext
            context.master.keep_secret(all_settings(spark))
            context.master.application_started(spark_context.applicationId, spark_context.uiWebUrl or "")
            ship_package(spark)
        if through_arrow not in lacks:
            lacks[through_arrow] = _lack(context, spark, _FOR_ARROW if through_arrow else ())
        return lacks[through_arrow]


def ship_package(spark: SparkSession) -> None:
    """Ship this package to the executors, unless it came with ``--py-files``. Safe to repeat."""
    if not is_local(spark) and not _is_shipped():
        spark.sparkContext.addPyFile(str(build_package()))


def _lack(context: RecoveryContext, spark: SparkSession, packages: Sequence[str]) -> str:
    def missing(_: Iterable[int]) -> list[str]:
        import importlib.util

        return [name for name in packages if importlib.util.find_spec(name) is None]

    if names := missing(()):
        return f"the driver lacks {_to_install(names)}"
    if _same_python(spark) or (is_local(spark) and not packages):
        return ""
    if packages and (names := _asked(spark, missing)):
        return f"the executors lack {_to_install(names)}"
    if not packages and not isinstance(context.master.store, FileObjectStore):
        return ""  # only the JVM accesses it
    return _ask_for_the_store(context, spark)


def _to_install(names: Sequence[str]) -> str:
    packages, remedy = f"package{'s' if len(names) > 1 else ''} {', '.join(names)}", f"pip install {' '.join(names)}"
    return f"the Python {packages}; install with '{remedy}' in the Python of driver and executors (PYSPARK_PYTHON)"


def _same_python(spark: SparkSession) -> bool:
    """Whether the executors run the driver's own Python, so that no task is needed to ask them."""
    found = shutil.which(spark.sparkContext.pythonExec)
    if not is_local(spark) or found is None:
        return False
    theirs, ours = Path(found), Path(sys.executable)
    return theirs.parent == ours.parent and theirs.resolve() == ours.resolve()


def _is_shipped() -> bool:
    """Whether this process itself runs from a zip that came with ``--py-files``, which executors then have, too."""
    return ".zip/" in str(airflow_provider.__file__)


def _ask_for_the_store(context: RecoveryContext, spark: SparkSession) -> str:
    """Return why executors on other machines cannot use the store: out of reach, or not the driver's.

    They look for this attempt's claim: one small request each, with the permission that reading partitions needs. A
    store that does not answer is not reported: it may answer by the time something is stored.
    """
    request, prefix = context.master.request, context.master.prefix
    event_store, options = request.event_store, request.storage.to_mapping()
    epoch, variable = context.master.epoch, INTEGRITY_SECRET

    def probe(_: Iterable[int]) -> Iterable[str]:
        try:
            from airflow_provider.core.errors import RecoveryError
            from airflow_provider.core.options import StorageOptions
            from airflow_provider.storage.claims import Claims
            from airflow_provider.storage.uris import open_store
        except ImportError as error:
            yield f"the executors cannot load the package that comes with the job: {error}"
            return
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
    """Run *probe* on all cores, up to 64; return its distinct answers."""
    context = spark.sparkContext
    spread = max(1, min(context.defaultParallelism, 64))
    return sorted(set(context.parallelize(range(spread), spread).mapPartitions(probe).collect()))
