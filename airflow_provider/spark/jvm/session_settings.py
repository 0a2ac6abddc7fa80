"""The settings of a session that are set explicitly, and the session that a thread works in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.scala import companion, items

_BETWEEN = "\x01"
_SQL = "spark.sql."
_OF_READERS = (
    r"^(?:(?:orc|parquet)\.(?!encryption\.|crypto\.).+"
    r"|io\.compression\.codecs|mapreduce\.input\.linerecordreader\.line\.maxlength)$"
)
"""Hadoop settings that decide which rows a file has; encryption keys do not, and are secret."""


@dataclass(frozen=True)
class QuerySettings:
    """The settings that a query runs with.

    :ivar values: the settings of its session, each that has a value
    :ivar in_tasks: whether its tasks know them, too. Tasks of a frame that becomes an RDD run with Spark's defaults:
        only an action passes its session's settings to its tasks (``SQLExecution.withSQLConfPropagated``)
    """

    values: Mapping[str, str]
    in_tasks: bool = True


@contextmanager
def active_session(spark: Any) -> Iterator[None]:
    """Make *spark* this thread's active session; without one, no part of a plan can be built.

    In the thread that made it, it already is; a thread that the script has started has none.
    """
    sessions = jvm_of(spark).SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def settings_of_tasks(spark: Any) -> Iterator[None]:
    """Let jobs that this thread starts have the session's settings in their tasks, and the session's tags.

    Spark does so for an action (``SQLExecution.withSQLConfPropagated``, ``withSessionTagsApplied``); a stage that runs
    before its action would be computed with the defaults, and not end at ``interruptAll``.
    """
    context, before = spark._jsparkSession.sparkContext(), spark._jsparkSession.sparkContext().getLocalProperties()
    properties = before.clone()
    for name, value in all_settings(spark).items():
        if name.startswith("spark"):
            properties.setProperty(name, value)
    context.setLocalProperties(properties)
    if spark.version >= "4":
        session = spark._jsparkSession
        tags = getattr(session.managedJobTags().get().values().toSet(), "$plus")(session.sessionJobTag())
        context.addJobTags(tags)
    try:
        yield
    finally:
        context.setLocalProperties(before)


def settings_set(spark: Any, settings: Mapping[str, str], *prefixes: str) -> dict[str, str]:
    """Return those of *settings* below *prefixes* whose value is not Spark's default, however they were set."""
    known = companion(jvm_of(spark).org.apache.spark.sql.internal, "SQLConf")
    return {
        name: value for name, value in settings.items() if name.startswith(prefixes) and value != _default(known, name)
    }


def reader_settings(spark: Any, settings: Mapping[str, str]) -> dict[str, str]:
    """Return how Hadoop's libraries read files: Hadoop's configuration (``spark.hadoop.…``), overridden by a session's
    *settings*.
    """
    configured = spark.sparkContext._jsc.hadoopConfiguration().getValByRegex(_OF_READERS)
    found = {str(name): str(value) for name, value in configured.items()} if len(configured) else {}
    given = {name: value for name, value in settings.items() if of_readers(name)}
    return {name: value for name, value in (found | given).items() if value}


def of_readers(name: str) -> bool:
    """Whether a session setting decides how Hadoop's libraries read files."""
    return re.match(_OF_READERS, name) is not None


def default_setting(spark: Any, name: str) -> str:
    """Return a setting's default; empty if Spark does not know it."""
    return _default(companion(jvm_of(spark).org.apache.spark.sql.internal, "SQLConf"), name) or ""


def all_settings(spark: Any) -> dict[str, str]:
    """Return all settings of a session, including those of its application."""
    return pairs_of(spark._jsparkSession.conf().getAll())


def application_settings(spark: Any) -> dict[str, str]:
    """Return the SQL settings with which each session of an application starts."""
    pairs = spark._jsparkSession.sharedState().conf().getAllWithPrefix(_SQL)
    return {_SQL + str(pair._1()): str(pair._2()) for pair in pairs}


def pairs_of(settings: Any) -> dict[str, str]:
    """Return the contents of a Scala map of texts."""
    printed = [text.partition(" -> ") for text in str(settings.mkString(_BETWEEN)).split(_BETWEEN)]
    if len(printed) == int(settings.size()) and all(arrow for _, arrow, _ in printed):
        return {name: value for name, _, value in printed}
    return {str(pair._1()): str(pair._2()) for pair in items(settings.toSeq())}  # a value may contain the separator


def settings_of_script() -> dict[str, str]:
    """Return all settings of the script's current session; none if there is none, or no JVM answers."""
    try:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        return all_settings(spark) if spark is not None else {}
    except Exception:  # noqa: BLE001 - the script has failed, and its JVM may be what has failed
        return {}


def _default(known: Any, name: str) -> str | None:
    """Return a setting's default; ``None`` if Spark does not know it."""
    entry = known.getConfigEntry(name)
    return None if entry is None else str(entry.defaultValueString())


def serves_spark_connect(spark: Any) -> bool:
    """Whether an application serves clients of Spark Connect, as one does that PySpark has started for a client."""
    return "SparkConnectPlugin" in str(spark.sparkContext._conf.get("spark.plugins", ""))


def shuffle_settings(spark: Any) -> dict[str, str]:
    """Return the settings that decide how map outputs are written, each with the value in force."""
    configured = spark.sparkContext._conf  # getConf() copies it, setting by setting
    entries = companion(jvm_of(spark).org.apache.spark.internal.config, "package")
    declared = (
        entries.SHUFFLE_COMPRESS(),
        entries.IO_COMPRESSION_CODEC(),
        entries.SERIALIZER(),
        entries.SHUFFLE_MANAGER(),
    )
    return {str(entry.key()): configured.get(entry.key(), str(entry.defaultValueString())) for entry in declared}
