"""What a script finds of its session beside the rows: settings, properties, views, listeners, random numbers."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from pyspark.sql import SparkSession

VOLATILE = {
    "spark.app.id",
    "spark.app.startTime",
    "spark.app.submitTime",
    "spark.driver.host",
    "spark.driver.port",
    "spark.sql.warehouse.dir",
    "spark.local.dir",
    "spark.eventLog.dir",
    "spark.hadoop.javax.jdo.option.ConnectionURL",
    "spark.app.name",
    "spark.master",
    "spark.executor.id",
}

OF_THE_PLAN = {"__fetch_continuous_blocks_in_batch_enabled"}
"""Spark sets it where a plan reads a shuffle, and leaves it: whether it does depends on the number of partitions."""


def settings(spark: SparkSession) -> dict[str, str]:
    """All settings of the session and of its context."""
    found = dict(spark.sparkContext.getConf().getAll())
    session = spark._jsparkSession.sessionState().conf().getAllConfs().iterator()
    while session.hasNext():
        pair = session.next()
        found[pair._1()] = pair._2()
    return {name: value for name, value in sorted(found.items()) if name not in VOLATILE}


def local_properties(spark: SparkSession) -> dict[str, str]:
    properties = spark.sparkContext._jsc.sc().getLocalProperties()
    names = sorted(name for name in properties.stringPropertyNames() if name not in OF_THE_PLAN)
    return {name: properties.getProperty(name) for name in names}


def random_state() -> str:
    """A digest of the state of Python's own generator: whether somebody else has drawn from it."""
    return hashlib.sha256(repr(random.getstate()).encode()).hexdigest()[:12]


def light_state(spark: SparkSession) -> dict[str, Any]:
    """What is looked at after each case."""
    changed = {name: value for name, value in spark_settings_set(spark).items() if name not in VOLATILE}
    return {
        "settings": changed,
        "properties": local_properties(spark),
        "tables": sorted(f"{table.name} {table.tableType}" for table in spark.catalog.listTables()),
        "cached": not spark._jsparkSession.sharedState().cacheManager().isEmpty(),
        "random": random_state(),
    }


def spark_settings_set(spark: SparkSession) -> dict[str, str]:
    """The settings that the session itself has; the defaults are not among them."""
    found = spark._jsparkSession.conf().getAll().iterator()
    pairs = {}
    while found.hasNext():
        pair = found.next()
        pairs[pair._1()] = pair._2()
    return dict(sorted(pairs.items()))


def _names(listeners: Any) -> list[str]:
    found = []
    for index in range(listeners.size()):
        name = listeners.get(index).getClass().getName()
        found.append("proxy" if "Proxy" in name else name)
    return sorted(found)


def full_state(spark: SparkSession) -> dict[str, Any]:
    """What is looked at once a script."""
    jvm = spark._jsparkSession
    state = light_state(spark)
    state["all settings"] = settings(spark)
    state["listeners"] = _names(spark.sparkContext._jsc.sc().listenerBus().listeners())
    state["query listeners"] = len(list(jvm.listenerManager().listListeners()))
    state["streaming listeners"] = len(list(jvm.streams().listListeners()))
    state["databases"] = sorted(database.name for database in spark.catalog.listDatabases())
    state["sample"] = random.sample(range(10**6), 5)
    return state
