"""``spark-recovery explain`` in processes of its own: what it tells, and that no job of the script runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.queries.conftest import query_data, tpch  # noqa: F401 - fixtures
from tests.queries.data import QuerySuite
from tests.queries.runs import JOBS, SCRIPTS
from tests.support.driver import DriverHarness

pytestmark = pytest.mark.process

SCHEMAS = {"parquet", "json", "csv"}
"""What Spark calls the jobs that read schemas."""


class Explained:
    """One run of the command."""

    def __init__(
        self, folder: Path, script: Path, *arguments: str, flags: tuple[str, ...] = (), **settings: str
    ) -> None:
        warehouse = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
        harness = DriverHarness(folder, "", settings=warehouse | {f"spark.sql.{k}": v for k, v in settings.items()})
        done = subprocess.run(
            [sys.executable, "-m", "airflow_provider.cli", "explain", *flags, str(script), *arguments],
            env=harness.env(),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        self.code, self.out, self.log = done.returncode, done.stdout, done.stderr
        self._events = folder / "eventlog-0"

    @property
    def json(self) -> Any:
        assert self.out, self.log
        return json.loads(self.out)

    def jobs(self) -> list[str]:
        """What Spark's own event log calls the jobs that ran."""
        lines = [line for file in self._events.rglob("events_*") for line in file.read_text().splitlines()]
        started = [event for event in map(json.loads, lines) if event["Event"] == "SparkListenerJobStart"]
        return [event["Stage Infos"][-1]["Stage Name"].split(" at ")[0] for event in started]


def line_of(text: str, script: Path) -> int:
    """The number of the first line of *script* that holds *text*."""
    return next(number for number, line in enumerate(script.read_text().splitlines(), start=1) if text in line)


def points(node: dict[str, Any]) -> list[dict[str, Any]]:
    own = [node["point"]] if node["point"] else []
    return own + [point for child in node["children"] for point in points(child)]


def test_a_query(tpch: QuerySuite, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """A TPC-H query is told with its aggregate's recovery point and the shuffle below; nothing is computed."""
    target = tmp_path / "out"
    target.mkdir()
    splits = {"files.maxPartitionBytes": "16k", "files.openCostInBytes": "0", "files.minPartitionNum": "64"}
    told = Explained(
        tmp_path, JOBS / "queries.py", str(tpch.folder), str(target), "1", flags=("--overhead-budget", "1e6"), **splits
    )
    assert told.code == 0, told.log
    lines = told.out.splitlines()
    assert lines[0] == f"1. write.parquet  queries.py:{line_of('result.write', JOBS / 'queries.py')}"
    assert any(line.startswith("     + recovery point 'aggregate(l_returnflag, l_linestatus)'") for line in lines)
    assert "files of shuffle(l_returnflag, l_linestatus) are kept" in " ".join(told.out.split())
    assert "queries.py: 1 action, 1 recovery point, 0 places not taken" in lines
    assert sorted(path.name for path in target.iterdir()) == ["seconds.json"]  # the script's own
    assert told.jobs()
    assert set(told.jobs()) <= SCHEMAS


def test_what_a_script_caches(tpch: QuerySuite, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """What is cached is told where it is first computed, in JSON on a clean output; later actions refer to that."""
    (tmp_path / "out").mkdir()
    told = Explained(
        tmp_path,
        SCRIPTS / "caching.py",
        str(tpch.tables),
        str(tmp_path / "out"),
        flags=("--json", "--overhead-budget", "1e6"),
    )
    actions = told.json["actions"]
    assert [action["action"] for action in actions] == ["count", *["write.parquet"] * 3, "first"]
    assert "persisted" in {point["rule"] for point in points(actions[0]["plan"])}
    assert "computed by action 1" in json.dumps(actions[1]["plan"])
    assert "caching.py:33: TypeError" in told.json["error"]  # it goes on from a row
    assert set(told.jobs()) <= SCHEMAS
    assert list((tmp_path / "out").iterdir()) == []


def test_a_script_that_needs_results(tpch: QuerySuite, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """What was seen until then is told, then the error in one line, and the exit code is 1; with the default budget
    nothing is worth storing here, and each place says so.
    """
    told = Explained(tmp_path, SCRIPTS / "driver_side.py", str(tpch.tables), str(tmp_path / "out"))
    assert told.code == 1
    lines = told.out.splitlines()
    assert [line.split()[1] for line in lines if line[:1].isdigit()] == ["collect", "count", "first"]
    assert any("- no recovery point" in line and "too little to be worth storing" in line for line in lines)
    assert lines[-1].startswith("  driver_side.py:")
    assert "AttributeError: 'NoneType' object has no attribute 'o_orderkey'" in lines[-1]
    assert set(told.jobs()) <= SCHEMAS


WRITES_BY_SQL = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(8).createOrReplaceTempView("numbers")
spark.sql("CREATE TABLE kept USING parquet AS SELECT id % 2 AS half, count(*) AS n FROM numbers GROUP BY 1")
spark.sql("DROP TABLE IF EXISTS kept")
spark.sql("SET spark.sql.shuffle.partitions = 3")
spark.sql("CACHE TABLE few AS SELECT * FROM numbers WHERE id < 3")
print(spark.conf.get("spark.sql.shuffle.partitions"), spark.table("few").count())
spark.sql("INSERT INTO kept SELECT id, 1 FROM few")
print(spark.range(3).groupBy().count().toPandas().columns.tolist(), spark.range(3).rdd.map(str).collect())
spark.range(4).groupBy("id").count().localCheckpoint().groupBy("id").max("count").write.saveAsTable("other")
"""


def test_sql_that_writes(tmp_path: Path) -> None:
    """Statements that write are told and not run; those of the session are; no Spark job runs at all."""
    script = tmp_path / "by_sql.py"
    script.write_text(WRITES_BY_SQL)
    told = Explained(tmp_path, script, flags=("--json",))
    assert told.code == 0, told.log
    assert [action["action"].split(" AS ")[0] for action in told.json["actions"]] == [
        "sql: CREATE TABLE kept USING parquet",
        "sql: DROP TABLE IF EXISTS kept",
        "count",
        "sql: INSERT INTO kept SELECT id, 1 FROM few",
        "toPandas",
        "rdd",
        "RDD.collect",
        "localCheckpoint",
        "write.saveAsTable",
    ]
    assert "3 0" in told.log
    assert "['count'] []" in told.log
    assert told.jobs() == []
    assert list(tmp_path.rglob("*.parquet")) == []
