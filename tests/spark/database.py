"""A table that Spark reads by JDBC, of which nothing tells whether its rows have changed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PASSWORD = "hunter22-derby"
_names = itertools.count()


class Database:
    """A table in a database of the driver's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark: Any = spark
        self.url = f"jdbc:derby:memory:unversioned{next(_names)};create=true"
        self.run("CREATE TABLE rates (id INT, rate INT)")
        self.add(1)
        self.add(2)

    def run(self, statement: str) -> None:
        jvm = self.spark._jvm
        driver = (
            jvm.java.lang.Thread.currentThread()
            .getContextClassLoader()
            .loadClass("org.apache.derby.jdbc.EmbeddedDriver")
        )
        properties = jvm.java.util.Properties()
        connection = (
            driver.getConstructors()[0].newInstance(jvm.java.util.ArrayList().toArray()).connect(self.url, properties)
        )
        try:
            connection.createStatement().execute(statement)
        finally:
            connection.close()

    def add(self, number: int) -> None:
        self.run(f"INSERT INTO rates VALUES ({number}, {number * 10})")

    def read(self, table: str = "rates") -> DataFrame:
        spark: SparkSession = self.spark
        return spark.read.jdbc(
            self.url,
            table,
            predicates=["id <= 1", "id > 1"],
            properties={"user": "app", "password": PASSWORD, "driver": "org.apache.derby.jdbc.EmbeddedDriver"},
        )
