"""Check the demo's result: compare it, value by value, with an uninterrupted run's and with DuckDB's."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import duckdb

Row: TypeAlias = tuple[Any, ...]

KEY = "carrier, hour"


def features_in(folder: Path) -> list[Row]:
    """Return the rows of the Parquet files in *folder*, ordered by key."""
    with duckdb.connect() as connection:
        query = f"SELECT * FROM read_parquet(?) ORDER BY {KEY}"  # noqa: S608 - a constant
        return connection.execute(query, [f"{folder}/*.parquet"]).fetchall()


def features_by_duckdb(input_dir: Path) -> list[Row]:
    """Return the features that DuckDB computes from the CSV files in *input_dir*, ordered by key."""
    query = files("airflow_provider.cli.demo").joinpath("flights_features.sql").read_text()
    with duckdb.connect() as connection:
        connection.execute("SET VARIABLE input_dir = ?", [str(input_dir)])
        return connection.execute(query).fetchall()


def differences(rows: list[Row], others: list[Row]) -> list[str]:
    """Return one line for each row that only one side has; an empty list if they are equal."""
    if rows == others:
        return []
    lines = [f"only here:  {row}" for row in rows if row not in others]
    lines += [f"only there: {row}" for row in others if row not in rows]
    return lines or [f"the same rows, but {len(rows)} against {len(others)} or in another order"]
