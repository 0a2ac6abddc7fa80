from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider.cli.demo.same_features import differences, features_by_duckdb, features_in


@pytest.mark.walk
@pytest.mark.spark
@pytest.mark.process
def test_the_example_job_and_duckdb_agree_on_every_value(few_flights: Path, dags: Path, tmp_path: Path) -> None:
    """Two engines and two formulations yield the same features; without recovery the script needs nothing but Spark."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["spark-submit", "--master", "local[2]", dags / "flights_features_job.py", few_flights, tmp_path / "features"],
        env=os.environ | {"PATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        check=True,
        timeout=200,
    )

    rows = features_in(tmp_path / "features")

    assert len(rows) > 150
    assert differences(rows, features_by_duckdb(few_flights)) == []


@pytest.mark.integration
def test_a_changed_delay_of_one_flight_is_noticed(few_flights: Path, tmp_path: Path) -> None:
    """The comparison is sharp: one minute in one of some eight thousand flights makes a difference."""
    for name in ("weather.csv", "planes.csv"):
        (tmp_path / name).symlink_to(few_flights / name)
    with (few_flights / "flights.csv").open(newline="") as source:
        header, *rows = csv.reader(source)
    delay = header.index("dep_delay")
    rows[4000][delay] = str(int(rows[4000][delay]) + 1)
    with (tmp_path / "flights.csv").open("w", newline="") as target:
        csv.writer(target).writerows([header, *rows])

    found = differences(features_by_duckdb(few_flights), features_by_duckdb(tmp_path))

    assert found
    assert {line.partition(":")[0] for line in found} == {"only here", "only there"}


def test_rows_that_are_doubled_or_missing_are_differences() -> None:
    """Equal sets of rows are not enough."""
    assert differences([("AA", 5)], [("AA", 5)]) == []
    assert differences([("AA", 5), ("AA", 5)], [("AA", 5)]) == [
        "the same rows, but 2 against 1 or in another order",
    ]
    assert differences([("AA", 5)], []) == ["only here:  ('AA', 5)"]
