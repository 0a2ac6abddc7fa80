"""Statements that read, and those that may write."""

from __future__ import annotations

import pytest

from airflow_provider.core.sql_text import may_write


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t SELECT 1",
        "  -- a comment\n/* and\nanother */ insert overwrite t values (1)",
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
        "FROM s INSERT INTO t SELECT * INSERT INTO u SELECT *",
        "CREATE TABLE t AS SELECT 1",
        "create or replace table t using parquet as select 1",
        "REPLACE TABLE t AS SELECT 1",
        "INSERT OVERWRITE DIRECTORY '/x' SELECT 1",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "TRUNCATE TABLE t",
        "DROP TABLE t",
        "ALTER TABLE t DROP PARTITION (a = 1)",
        "LOAD DATA INPATH '/x' INTO TABLE t",
        "CALL system.rollback_to_snapshot('t', 1)",
        "BEGIN INSERT INTO t VALUES (1); END",
        "EXECUTE IMMEDIATE 'INSERT INTO t VALUES (1)'",
    ],
)
def test_statements_that_write(text: str) -> None:
    """With comments, common tables and several inserts, and whatever is not known."""
    assert may_write(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "(SELECT 1) UNION (SELECT 2)",
        "-- INSERT INTO t\nSELECT 'INSERT INTO t'",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "FROM t SELECT a",
        "VALUES (1)",
        "SET spark.sql.shuffle.partitions = 4",
        "USE db",
        "SHOW TABLES",
        "EXPLAIN INSERT INTO t SELECT 1",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "CREATE OR REPLACE TEMP VIEW v AS SELECT 1",
        "create global temporary view v as select 1",
        "DROP VIEW v",
        "CACHE TABLE t",
        "",
        "  -- nothing",
    ],
)
def test_statements_that_read(text: str) -> None:
    """They run whether or not ownership can be confirmed."""
    assert not may_write(text)
