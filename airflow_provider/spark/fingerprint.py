"""The fingerprint of a recovery point: equal only if its rows are certain to be equal.

Named parts, so that a retry can say what has changed: the plan, each scan's files, each Python function, the modules
these may call, the session's settings, versions, and the recovery points further up. When in doubt a part differs, and
the vertex is computed again.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.description import PlanDescriber, digest
from airflow_provider.spark.jvm.scala import items
from airflow_provider.spark.recovery_point import fingerprint_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.context import RecoveryContext

FORMAT = "1"
"""Raise it when the stored partitions or the fingerprint itself change meaning."""

_NO_MEANING = (
    "spark.sql.warehouse.dir",
    "spark.sql.artifact.",
    "spark.sql.ui.",
    "spark.sql.debug.",
    "spark.sql.planChangeLog",
    "spark.sql.adaptive.",
    "spark.sql.shuffle.partitions",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled",
    "spark.sql.streaming.",
)
"""Settings that change how a result is computed, or how it is cut (the layout tells), but not its rows."""


@dataclass(frozen=True)
class Fingerprint:
    """What a recovery point is.

    :ivar digest: over all parts
    :ivar parts: name → digest
    :ivar upstream: tokens of the recovery points that it reads
    :ivar opaque: why it has no fingerprint; empty if it has
    :ivar not_deterministic: what makes its rows vary from run to run; empty if nothing does
    """

    digest: str
    parts: dict[str, str]
    upstream: tuple[str, ...]
    opaque: tuple[str, ...]
    not_deterministic: tuple[str, ...]


def fingerprint(df: DataFrame, context: RecoveryContext) -> Fingerprint:
    """Return the fingerprint of *df* in its session."""
    spark = df.sparkSession
    description = PlanDescriber(spark, context.local_data).describe(df)
    parts = {**description.parts, "settings": _settings(spark), "versions": _versions(spark, description.has_python)}
    for token in description.upstream:
        parts[f"upstream {fingerprint_of(token)}"] = fingerprint_of(token)
    if description.has_python:
        parts["modules"] = _modules()
    parts = {name: hashlib.sha256(value.encode()).hexdigest()[:16] for name, value in parts.items()}
    return Fingerprint(
        digest=digest(*(text for name in sorted(parts) for text in (name, parts[name]))),
        parts=parts,
        upstream=tuple(dict.fromkeys(description.upstream)),
        opaque=tuple(dict.fromkeys(description.opaque)),
        not_deterministic=tuple(dict.fromkeys(description.not_deterministic)),
    )


def _settings(spark: SparkSession) -> str:
    settings = {
        pair._1(): pair._2()
        for pair in _pairs(spark)
        if pair._1().startswith("spark.sql.") and not pair._1().startswith(_NO_MEANING)
    }
    settings["spark.sql.session.timeZone"] = spark.conf.get("spark.sql.session.timeZone") or ""
    return digest(*(text for name in sorted(settings) for text in (name, settings[name])))


def _pairs(spark: SparkSession) -> list[Any]:
    return list(items(spark._jsparkSession.conf().getAll().toSeq()))


def _versions(spark: SparkSession, has_python: bool) -> str:
    versions = {"format": FORMAT, "spark": spark.version}
    if has_python:
        versions["python"] = platform.python_version()
        for package in ("pandas", "numpy", "pyarrow", "scipy"):
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                versions[package] = ""
    return digest(*(text for name in sorted(versions) for text in (name, versions[name])))


def _modules() -> str:
    """Digest the source of every loaded module of the user's own.

    A function that is imported is pickled by its name only, so its code must be looked at here. Which modules a
    function reaches is not followed: any change in any of them counts.
    """
    sources: dict[str, bytes] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or not file or _is_installed(Path(file)):
            continue
        try:
            sources[name] = Path(file).read_bytes()
        except OSError:
            loader = getattr(getattr(module, "__spec__", None), "loader", None)
            source = getattr(loader, "get_data", lambda _: b"")(file) if loader else b""
            sources[name] = bytes(source)
    return digest(*(text for name in sorted(sources) for text in (name, hashlib.sha256(sources[name]).hexdigest())))


def _is_installed(path: Path) -> bool:
    text = str(path)
    roots = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = str(Path(__file__).parents[1])
    return any(text.startswith(root) for root in [*roots, own] if root) or "/pyspark/" in text or "/py4j" in text
