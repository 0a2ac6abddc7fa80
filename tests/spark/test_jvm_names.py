"""Names of the JVM are asked for once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider.spark.jvm.names import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_class_is_looked_for_once(spark: SparkSession, requests: list[str]) -> None:
    """The second time its full name asks the JVM for nothing, of a session as of its context."""
    first = jvm_of(spark).org.apache.spark.sql.types.DataType
    requests.clear()
    assert jvm_of(spark.sparkContext).org.apache.spark.sql.types.DataType is first
    assert jvm_of(spark).org.apache.spark.sql.types.DataType is first
    assert not requests
    assert first.fromJson('"long"').sql() == "BIGINT"


def test_a_name_that_is_no_class_yet_is_looked_for_again(spark: SparkSession, requests: list[str]) -> None:
    """A class may be loaded later: what does not find it is not kept."""
    package = jvm_of(spark).org.apache.spark.sql
    for _ in range(2):
        requests.clear()
        assert package.NoSuchClass is not None
        assert requests


def test_names_that_pyspark_imports_are_known(spark: SparkSession) -> None:
    """Classes that the gateway has imported go by their short names."""
    assert jvm_of(spark).PythonUtils is jvm_of(spark).PythonUtils
    assert jvm_of(spark).PythonUtils.isEncryptionEnabled(spark.sparkContext._jsc) is False
