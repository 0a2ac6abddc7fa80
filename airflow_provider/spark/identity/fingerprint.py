"""The fingerprint of a recovery point or shuffle: equal only if its rows are certain to be equal.

It has named parts, so that a retry can say what has changed: the plan, its sources, its Python functions and the
modules that these reach, the session's settings, versions, and the recovery points upstream. When in doubt a part
differs, and the vertex is computed again. docs/reuse.md says what counts and what does not.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from airflow_provider.core import explain
from airflow_provider.core.digest import digest
from airflow_provider.core.redaction import names_a_secret
from airflow_provider.core.vertex_token import FOR_RETRIES, fingerprint_of, name_of
from airflow_provider.spark.identity.plan_identity import PlanDescription, PythonFunction, read_plan
from airflow_provider.spark.jvm.determinism import chosen_by_order, spreads, varies
from airflow_provider.spark.jvm.layout import CUTTING_SETTINGS
from airflow_provider.spark.jvm.queries import analyzed
from airflow_provider.spark.jvm.relation import cached_below
from airflow_provider.spark.jvm.session_settings import (
    QuerySettings,
    active_session,
    all_settings,
    default_setting,
    of_readers,
    reader_settings,
    settings_set,
    shuffle_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.identity.known import Draws, Known
    from airflow_provider.spark.jvm.sources import Source

FORMAT = "3"
"""Raise it when the stored partitions or the fingerprint itself change meaning."""

_COLUMNS = f"{explain.PLAN} columns"
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
    "spark.sql.execution.pyspark.udf.",
    "spark.sql.pyspark.",
    "spark.sql.repl.",
    "spark.sql.sources.parallelPartitionDiscovery.",
    "spark.sql.streaming.",
    "spark.sql.codegen.",
    "spark.sql.catalog.default_iceberg",
    "spark.sql.catalog.default_cache_iceberg",
)
"""Settings that change how a result is computed, shown or split (the layout covers that), but not its rows.
Iceberg sets the last two itself, when a script first names its format.
"""
_ARCHIVES = ("spark.archives", "spark.yarn.dist.archives")
"""Settings that ship the executors' Python environment."""

_TIME_ZONE = "spark.sql.session.timeZone"
_SHOWN = re.compile(r"[\w ./:,+-]{0,100}")
"""Values that are recorded as they are; of others, only a digest."""


@dataclass(frozen=True)
class Fingerprint:
    """The identity of a recovery point or a shuffle.

    :ivar digest: over everything that decides its rows
    :ivar parts: named parts, to say later what has changed (see :mod:`airflow_provider.core.explain`)
    :ivar upstream: tokens of the recovery points that it reads
    :ivar opaque: why it has no fingerprint; empty if it has
    :ivar reads: whether functions, here or in a recovery point upstream, read something by themselves; the moment of
        the attempt represents its state
    :ivar unversioned: the reasons in *opaque* that are sources without a version, if all of these can be described
    :ivar not_deterministic: what makes its rows vary from run to run; empty if nothing does
    :ivar cached: whether it reads what the script has cached
    :ivar literals: texts and numbers in the plan's expressions
    :ivar marked: what marks rows given to ``createDataFrame`` as this attempt's; empty if nothing does
    :ivar of_each_run: the digest without what marks this attempt alone; empty if nothing does, or nothing was asked
    :ivar call: the digest without what marks this attempt alone, and without what its sources hold
    """

    digest: str
    parts: dict[str, str]
    upstream: tuple[str, ...]
    opaque: tuple[str, ...]
    not_deterministic: tuple[str, ...]
    cached: bool = False
    literals: frozenset[str | int | float] = frozenset()
    unversioned: tuple[str, ...] = ()
    reads: bool = False
    of_each_run: str = ""
    marked: str = ""
    call: str = ""


def fingerprint(
    df: DataFrame,
    context: Known,
    version: str = "",
    of_this_run: Callable[[str | int | float], bool] | None = None,
    read_as: Callable[[Source], Source] | None = None,
    draws: Draws | None = None,
) -> Fingerprint:
    """Return the fingerprint of *df* in its session.

    :param version: replaces everything that has no fingerprint of its own: the user vouches that the rows are equal
        while this text is
    :param of_this_run: whether a text or a number in the plan marks this attempt alone; ``None`` if not needed
    :param read_as: returns what represents a source; by default the source as it is
    :param draws: by which its draws count; by default those of the script
    """
    spark = df.sparkSession
    with active_session(spark):
        described = read_plan(spark, context, analyzed(df), draws=draws or context.draws, of_this_run=of_this_run)
    if read_as is not None:
        described.sources = [read_as(source) for source in described.sources]
    named = {_COLUMNS: digest(df.schema.json())[:16]}
    if version:
        named[explain.GIVEN] = version
        described.sources = [replace(each, identity="opaque") if each.opaque else each for each in described.sources]
    made = _fingerprint(spark, context, described, all_settings(spark), named)
    return replace(made, opaque=()) if version else made


def drawn_in_cache(df: DataFrame, known: Known) -> tuple[str, ...]:
    """Return what makes the cached frames that *df* reads vary from run to run.

    The script may use such a frame besides *df*, and expects the same rows there. Only random draws, the clock, and
    dependence on how rows are distributed count: otherwise the rows are nearly always the same.
    """
    return tuple(reason for reason in not_deterministic_in_cache(df, known) if varies(reason))


def not_deterministic_in_cache(df: DataFrame, known: Known) -> tuple[str, ...]:
    """Return what is not deterministic in the cached frames that *df* reads."""
    spark = df.sparkSession
    with active_session(spark):
        plans = [relation.cacheBuilder().cachedPlan() for relation in cached_below(df)]
        found = [reason for plan in plans for reason in read_plan(spark, known, plan).not_deterministic]
    return tuple(dict.fromkeys(found))


def settled_once(df: DataFrame, known: Known, not_deterministic: tuple[str, ...]) -> bool:
    """Whether one complete result of a frame settles for all attempts what is not deterministic in it.

    In plain Spark each query may take other rows, or put them in another order, even the next query over the same
    frame. So a complete result is one that an uninterrupted run could have had beside any other result. But a cached
    frame is the same for everything that reads it, and each attempt makes it anew.

    :param not_deterministic: what makes its rows vary, except for how they are spread over tasks
    """
    if not all(map(chosen_by_order, not_deterministic)):
        return False
    return not not_deterministic or all(map(spreads, not_deterministic_in_cache(df, known)))


def exchange_fingerprint(
    spark: SparkSession, known: Known, canonical_exchange: Any, settings: QuerySettings, *, tasks: bool = False
) -> Fingerprint:
    """Return the fingerprint of a shuffle's output: equal only if every row that it may hold is equal.

    It covers the whole physical plan below, subqueries included, and how map outputs are written.

    :param canonical_exchange: an exchange in a plan, or its query stage. Its canonical form counts, by which Spark
        itself recognises equal work
    :param settings: those that its query runs, or ran, with
    :param tasks: whether to cover only what its tasks run, not the shuffles and broadcasts that they read
    """
    with active_session(spark):
        # Making a canonical form again makes new expressions, which use up ids of the script's next plans.
        made = canonical_exchange.isCanonicalizedPlan()
        exchange = canonical_exchange if made else canonical_exchange.canonicalized()
        described = read_plan(spark, known, exchange, tasks=tasks)
        named = {f"{explain.SETTING} {name}": value for name, value in shuffle_settings(spark).items()}
    if not settings.in_tasks:
        named[f"{explain.SETTING} of its tasks"] = "defaults"
    return _fingerprint(spark, known, described, settings.values, named)


def uncertain(spark: SparkSession, known: Known, plan: Any) -> tuple[str, ...]:
    """Return why the rows of a plan, canonical or not, are not described, or may vary from run to run."""
    with active_session(spark):
        described = read_plan(spark, known, plan)
    return (*described.opaque, *described.not_deterministic)


def changed_settings(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the settings that differ and may change rows; an unset one differs from one set to its default."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name) and _has_meaning(name))


def _fingerprint(
    spark: SparkSession, known: Known, described: PlanDescription, settings: Mapping[str, str], named: dict[str, str]
) -> Fingerprint:
    """Return the fingerprint of a plan.

    :param settings: of its session
    :param named: further parts
    """
    read = {} if explain.GIVEN in named else _read_by_functions(known, described)
    reads = bool(read and not known.source_version) or any(token.endswith(FOR_RETRIES) for token in described.upstream)
    named = {**named, **read}
    named = {**named, **_settings(spark, described, settings), **_versions(spark, described), **_modules(described)}
    parts = {
        explain.PLAN: described.plan[:16],
        **_label_functions(described.functions),
        **{source.part: source.value for source in described.sources if not source.opaque},
        **{f"{explain.UPSTREAM} {name_of(token)}": fingerprint_of(token) for token in described.upstream},
        **named,
    }

    def of(plan: str, names: Iterable[str], sources: Iterable[str]) -> str:
        return digest(
            plan,
            *_list(*(function.identity.digest for function in described.functions)),
            *_list(*sources),
            *_list(*(fingerprint_of(token) for token in described.upstream)),
            *_list(*(text for name in sorted(names) for text in (name, named[name]))),
        )

    run = described.of_each_run  # an unnamed column is called after its value
    lasting = [name for name in named if not run or name != _COLUMNS]
    return Fingerprint(
        digest=of(described.plan, named, (source.identity for source in described.sources)),
        of_each_run=of(run, lasting, (source.lasting for source in described.sources)) if run else "",
        call=of(run or described.plan, lasting, ()),
        parts=parts,
        upstream=tuple(dict.fromkeys(described.upstream)),
        opaque=tuple(dict.fromkeys(described.opaque)),
        not_deterministic=tuple(dict.fromkeys(described.not_deterministic)),
        cached=described.cached,
        literals=described.literals,
        marked=next((source.marked for source in described.sources if source.marked), ""),
        unversioned=_unversioned(described),
        reads=reads,
    )


def _unversioned(described: PlanDescription) -> tuple[str, ...]:
    """Return why sources are opaque, if all opaque ones could be described; else nothing."""
    opaque = [source for source in described.sources if source.opaque]
    return tuple(dict.fromkeys(source.opaque for source in opaque)) if all(source.asked for source in opaque) else ()


def _label_functions(functions: list[PythonFunction]) -> dict[str, str]:
    """Return fingerprint parts that name *functions*; if several share a name, it is numbered."""
    parts: dict[str, str] = {}
    for function in functions:
        name, number = f"{explain.FUNCTION} {function.name}", 1
        while parts.setdefault(name, function.identity.digest[:16]) != function.identity.digest[:16]:
            number += 1
            name = f"{explain.FUNCTION} {function.name}#{number}"
    return parts


def _read_by_functions(known: Known, described: PlanDescription) -> dict[str, str]:
    """Return parts for the state of what functions read by themselves, one for each thing that they are seen to read.

    A given version counts for every function, because a function may read something in a way that cannot be seen.
    """
    if known.source_version:
        return {f"{explain.SETTING} source_version": _shown(known.source_version)} if described.functions else {}
    what = sorted({each for function in described.functions for each in function.identity.reads})
    return dict.fromkeys((f"{explain.READING} {each}" for each in what), _shown(known.state_read(what))) if what else {}


def _list(*texts: str) -> tuple[str, ...]:
    return (str(len(texts)), *texts)


def _settings(spark: SparkSession, described: PlanDescription, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are set explicitly and may change rows.

    An expression keeps the modes that were in force when it was made, and its plan shows them: the settings matter for
    what is decided while it runs.
    """
    given = {name: value for name, value in settings_set(spark, settings, "spark.sql.").items() if _has_meaning(name)}
    given |= reader_settings(spark, settings)
    given |= {_TIME_ZONE: settings.get(_TIME_ZONE) or default_setting(spark, _TIME_ZONE), **described.session}
    return {f"{explain.SETTING} {name}": _shown(value) for name, value in given.items()}


def _has_meaning(setting: str) -> bool:
    of_sql = setting.startswith("spark.sql.") and not setting.startswith(_NO_MEANING) and not names_a_secret(setting)
    return of_sql or of_readers(setting)


def _shown(value: str) -> str:
    return value if _SHOWN.fullmatch(value) else f"#{digest(value)[:16]}"


def _versions(spark: SparkSession, described: PlanDescription) -> dict[str, str]:
    versions = {"the format": FORMAT, "Spark": spark.version}
    if described.functions:
        versions["Python"] = platform.python_version()
        versions |= {name: archives for name in _ARCHIVES if (archives := _names_of_files(spark, name))}
    return {f"{explain.VERSION} {name}": value for name, value in versions.items()}


def _names_of_files(spark: SparkSession, setting: str) -> str:
    """Return the names of the files that a setting lists, without folders: some cluster managers make a folder for each
    application.
    """
    listed = spark.sparkContext.getConf().get(setting, "") or ""
    return ",".join(path.strip().rsplit("/", 1)[-1] for path in listed.split(",") if path.strip())


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
