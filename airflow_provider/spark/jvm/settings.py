"""The settings of a session that were given a value of their own."""

from __future__ import annotations

from typing import Any

from airflow_provider.spark.jvm.scala import companion, items


def settings_set(spark: Any, *prefixes: str) -> dict[str, str]:
    """Return the settings below *prefixes* whose value is not Spark's default, however they were set."""
    found = {}
    for pair in items(spark._jsparkSession.conf().getAll().toSeq()):
        name, value = str(pair._1()), str(pair._2())
        if name.startswith(prefixes) and value != _default(spark, name):
            found[name] = value
    return found


def _default(spark: Any, name: str) -> str | None:
    """Return what a setting is if nobody sets it, ``None`` if Spark does not know it."""
    entry = companion(spark._jvm.org.apache.spark.sql.internal, "SQLConf").getConfigEntry(name)
    return None if entry is None else str(entry.defaultValueString())
