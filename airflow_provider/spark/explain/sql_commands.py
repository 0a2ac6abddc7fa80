"""Which SQL statements may run while a script is explained: queries, and what changes the session alone."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from airflow_provider.spark.jvm.commands import WritingCommand
from airflow_provider.spark.jvm.scala import items


class Kind(Enum):
    """What is done with a statement."""

    RUN = "run"
    """It changes nothing outside of the session, and computes nothing."""
    CACHE = "cache"
    """It is run so that it only marks what is to be cached."""
    SKIP = "skip"
    """It is not run."""


_HARMLESS = (
    "CreateTempViewUsing",
    "SetCommand",
    "ResetCommand",
    "Uncache",
    "ClearCacheCommand",
    "SetCatalog",
    "SetNamespaceCommand",
    "Show",
    "Describe",
    "ExplainCommand",
    "Refresh",
    "CreateVariable",
    "DropVariable",
    "AddJars",
    "AddFiles",
)
"""Starts of the names of Spark's commands that may run."""
_CACHE = re.compile(r"\bCACHE\s+(?:LAZY\s+)?TABLE\b", re.IGNORECASE)
_INSERTING = {"InsertIntoStatement", "InsertIntoDir"}


def kind_of(spark: Any, text: str) -> Kind:
    """Return what is done with a statement; what Spark cannot read is its to refuse."""
    from py4j.java_gateway import is_instance_of

    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except Exception:  # noqa: BLE001 - Spark says what is wrong with it when it runs
        return Kind.RUN
    if plan.getClass().getSimpleName() == "UnresolvedWith":
        plan = plan.child()
    if _inserts(plan):
        return Kind.SKIP
    command = "org.apache.spark.sql.catalyst.plans.logical.Command"
    if not is_instance_of(spark.sparkContext._gateway, plan, command):
        return Kind.RUN
    name = str(plan.getClass().getSimpleName())
    if name.startswith("CacheTable"):
        return Kind.CACHE
    return Kind.RUN if name.startswith(_HARMLESS) or _temporary(plan, name) else Kind.SKIP


def lazily(text: str) -> str:
    """Return a ``CACHE TABLE`` statement as one that computes nothing."""
    return _CACHE.sub("CACHE LAZY TABLE", text, count=1)


def query_of(spark: Any, text: str) -> Any:
    """Return the query whose rows a statement writes, as a DataFrame; ``None`` if it has none that can be told."""
    command = WritingCommand.parse(spark, text)
    return command.query() if command is not None else None


def _inserts(plan: Any) -> bool:
    return plan.getClass().getSimpleName() in _INSERTING or any(_inserts(child) for child in items(plan.children()))


def _temporary(plan: Any, name: str) -> bool:
    """Whether it makes or drops something that ends with the session."""
    if name == "CreateViewCommand":  # of a temporary view; the other is called CreateView
        return True
    return name in ("CreateFunctionCommand", "CreateSQLFunctionCommand", "DropFunctionCommand") and bool(plan.isTemp())
