"""The fingerprint of a recovery point: equal only if its rows are certain to be equal.

Made of named parts, so that a retry can say what has changed: the plan, its sources, its Python functions and the
modules that these reach, the session's settings, versions, and the recovery points further up. When in doubt a part
differs, and the vertex is computed again. What counts and what does not is told in docs/reuse.md.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider.recovery import explain
from airflow_provider.recovery.digest import digest
from airflow_provider.spark.jvm.description import PlanDescriber, PlanDescription, label_functions
from airflow_provider.spark.jvm.layout import CUTTING_SETTINGS
from airflow_provider.spark.jvm.settings import settings_set
from airflow_provider.spark.recovery_point import fingerprint_of, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.functions import FunctionReader
    from airflow_provider.spark.watching import Watched

FORMAT = "2"
"""Raise it when the stored partitions or the fingerprint itself change meaning."""

_NO_MEANING = (
    *CUTTING_SETTINGS,
    "spark.sql.warehouse.dir",
    "spark.sql.artifact.",
    "spark.sql.ui.",
    "spark.sql.debug.",
    "spark.sql.planChangeLog",
    "spark.sql.broadcastTimeout",
    "spark.sql.execution.arrow.pyspark.",
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled",
    "spark.sql.execution.pythonUDF.pandas.",
    "spark.sql.execution.pyspark.udf.",
    "spark.sql.pyspark.",
    "spark.sql.repl.",
    "spark.sql.sources.parallelPartitionDiscovery.",
    "spark.sql.streaming.",
    "spark.sql.codegen.",
)
"""Settings that change how a result is computed, shown, or cut (the layout tells that), but not its rows."""

_SECRET = re.compile(r"secret|password|passwd|token|credential|access[._-]?key", re.IGNORECASE)
_TIME_ZONE = "spark.sql.session.timeZone"
_SHOWN = re.compile(r"[\w ./:,+-]{0,100}")
"""Values that are kept as they are; of others only a digest is."""


class Known(Protocol):
    """What was learnt of the script beside its plans: a recovery context has it.

    :ivar watched: what was learnt from watching the script make its DataFrames
    :ivar functions: tells Python functions apart
    """

    watched: Watched
    functions: FunctionReader


@dataclass(frozen=True)
class Fingerprint:
    """What a recovery point is.

    :ivar digest: over everything that decides its rows
    :ivar parts: named parts, to say later what has changed (see :mod:`airflow_provider.recovery.explain`)
    :ivar upstream: tokens of the recovery points that it reads
    :ivar opaque: why it has no fingerprint; empty if it has
    :ivar not_deterministic: what makes its rows vary from run to run; empty if nothing does
    """

    digest: str
    parts: dict[str, str]
    upstream: tuple[str, ...]
    opaque: tuple[str, ...]
    not_deterministic: tuple[str, ...]


def fingerprint(df: DataFrame, context: Known, version: str = "") -> Fingerprint:
    """Return the fingerprint of *df* in its session.

    :param version: stands for all that has no fingerprint of its own: the user vouches that its rows are equal wherever
        the text is
    """
    spark = df.sparkSession
    describer = PlanDescriber(spark, context.watched.local_data, context.watched.seeds, context.functions)
    described = describer.describe(df)
    named = {
        **_settings(spark, described, context.watched.settings),
        **_versions(spark, described),
        **_modules(described),
    }
    if version:
        named[explain.GIVEN] = version
    parts = {
        explain.PLAN: described.plan[:16],
        **label_functions(described.functions),
        **{source.part: source.value for source in described.sources if not source.opaque},
        **{f"{explain.UPSTREAM} {name_of(token)}": fingerprint_of(token) for token in described.upstream},
        **named,
    }
    return Fingerprint(
        digest=digest(
            described.plan,
            *_list(*(function.identity.digest for function in described.functions)),
            *_list(*(source.identity for source in described.sources)),
            *_list(*(fingerprint_of(token) for token in described.upstream)),
            *_list(*(text for name in sorted(named) for text in (name, named[name]))),
        ),
        parts=parts,
        upstream=tuple(dict.fromkeys(described.upstream)),
        opaque=() if version else tuple(dict.fromkeys(described.opaque)),
        not_deterministic=tuple(dict.fromkeys(described.not_deterministic)),
    )


def _list(*texts: str) -> tuple[str, ...]:
    return (str(len(texts)), *texts)


def _settings(spark: SparkSession, described: PlanDescription, made: list[tuple[str, str]]) -> dict[str, str]:
    """Return the settings that were given a value of their own and may change rows.

    :param made: those that the script made so far, in their order
    """
    settings = {name: value for name, value in settings_set(spark, "spark.sql.").items() if _has_meaning(name)}
    history = [text for name, value in made if _has_meaning(name) for text in (name, value)]
    if history:
        settings["the order in which settings were made"] = digest(*history)[:16]
    settings |= {_TIME_ZONE: spark.conf.get(_TIME_ZONE) or "", **described.session}
    return {f"{explain.SETTING} {name}": _shown(value) for name, value in settings.items()}


def _has_meaning(setting: str) -> bool:
    return setting.startswith("spark.sql.") and not setting.startswith(_NO_MEANING) and not _SECRET.search(setting)


def _shown(value: str) -> str:
    return value if _SHOWN.fullmatch(value) else f"#{digest(value)[:16]}"


def _versions(spark: SparkSession, described: PlanDescription) -> dict[str, str]:
    versions = {"the format": FORMAT, "Spark": spark.version}
    if described.functions:
        versions["Python"] = platform.python_version()
    return {f"{explain.VERSION} {name}": value for name, value in versions.items()}


def _modules(described: PlanDescription) -> dict[str, str]:
    """Return what the Python functions reach: sources of the user's own modules, versions of installed packages."""
    if not described.functions:
        return {}
    modules: dict[str, Any] = {}
    packages: dict[str, str] = {name: _installed(name) for name in ("pandas", "pyarrow")}  # Spark converts with them
    for function in described.functions:
        modules |= function.identity.modules
        packages |= function.identity.packages
    return {
        **{f"{explain.MODULE} {name}": value[:16] for name, value in modules.items()},
        **{f"{explain.PACKAGE} {name}": value for name, value in packages.items()},
    }


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
