"""Tables of TPC-H and TPC-DS as Parquet, with their queries as files beside them, made once and kept.

    <folder>/tpch-1/tables/lineitem/*.parquet     <folder>/tpch-1/queries/07.sql

The folder is one of the test run, or the one that ``SPARK_RECOVERY_QUERY_DATA`` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

from tests.queries.published_sql import spark_queries

KEPT = "SPARK_RECOVERY_QUERY_DATA"
"""Environment variable: a folder that keeps the data from one run to the next."""

SPARK_NULL_ORDER = "SET default_null_order = 'nulls_first_on_asc_last_on_desc'"


@dataclass(frozen=True)
class QuerySuite:
    """One benchmark's tables and queries on disk.

    :ivar kind: ``tpch`` or ``tpcds``
    """

    kind: str
    folder: Path

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    @property
    def numbers(self) -> list[int]:
        return sorted(int(file.stem) for file in (self.folder / "queries").glob("*.sql"))

    def sql(self, number: int) -> str:
        """A query as Spark runs it."""
        return (self.folder / "queries" / f"{number:02}.sql").read_text()

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """DuckDB with views of the same files, which sorts nulls as Spark does."""
        connection = connect(self.kind)
        connection.execute(SPARK_NULL_ORDER)
        for table in sorted(self.tables.iterdir()):
            connection.execute(f"CREATE VIEW {table.name} AS FROM read_parquet('{table}/*.parquet')")
        return connection


def connect(kind: str) -> duckdb.DuckDBPyConnection:
    """DuckDB with the extension of a benchmark, from the package that brings it."""
    import_extension(kind)
    connection = duckdb.connect()
    connection.execute(f"LOAD {kind}")
    return connection


def query_suite(kind: str, scale: float, folder: Path, parts: int = 2) -> QuerySuite:
    """Return a benchmark's tables and queries below *folder*, or where ``SPARK_RECOVERY_QUERY_DATA`` says.

    :param scale: the scale factor: 1 is about a gigabyte of text
    :param parts: files for each large table
    """
    root = Path(os.environ.get(KEPT) or folder).absolute()
    made = root / f"{kind}-{scale:g}-{parts}"
    suite = QuerySuite(kind, made)
    if not suite.tables.exists():  # it is renamed to when it is whole
        draft = made.with_name(f"{made.name}.{os.getpid()}")
        (draft / "tables").mkdir(parents=True)
        {"tpch": _tpch_tables, "tpcds": _tpcds_tables}[kind](draft / "tables", scale, parts)
        made.mkdir(exist_ok=True)
        (draft / "tables").rename(suite.tables)
        shutil.rmtree(draft)
    queries = made / "queries"
    queries.mkdir(exist_ok=True)
    for number, sql in spark_queries(connect(kind), kind).items():
        (queries / f"{number:02}.sql").write_text(sql)
    return suite


def _tpch_tables(folder: Path, scale: float, parts: int) -> None:
    program = Path(sys.executable).with_name("tpchgen-cli")
    command = [str(program), "parquet", "-s", f"{scale:g}", f"--parts={parts}", "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def _tpcds_tables(folder: Path, scale: float, parts: int) -> None:
    connection = connect("tpcds")
    connection.execute(f"CALL dsdgen(sf={scale:g})")
    for table, rows in connection.execute("SELECT table_name, estimated_size FROM duckdb_tables()").fetchall():
        (folder / table).mkdir()
        files = parts if rows > 10_000 else 1
        for part in range(files):
            share = f"SELECT * FROM {table} WHERE rowid % {files} = {part}"
            connection.execute(f"COPY ({share}) TO '{folder}/{table}/part-{part}.parquet' (FORMAT parquet)")
