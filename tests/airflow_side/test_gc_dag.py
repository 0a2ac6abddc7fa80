"""The maintenance DAG, run by Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider.storage.claims import Claims
from airflow_provider.storage.files import FileObjectStore
from tests.support.quick_python import quick_airflow

DAGS = Path(__file__).parents[2] / "dags"


@pytest.mark.integration
@pytest.mark.process
def test_the_maintenance_dag_deletes_what_is_older_than_the_connections_retention(tmp_path: Path) -> None:
    """Its task takes store and retention from the connection, and says what it did in log and XCom."""
    store = FileObjectStore(tmp_path / "store")
    for name, hours in (("old", 3), ("young", 1)):
        Claims(store, f"jobs/{name}/@job").claim()
        path = store.path_of(f"jobs/{name}/@job/claims/00000001.json")
        os.utime(path, (path.stat().st_mtime - hours * 3600,) * 2)
    connection = {"conn_type": "spark_recovery", "extra": {"event_store": store.uri, "retention": "2 h"}}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
        **quick_airflow(),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW_CONN_SPARK_RECOVERY_DEFAULT": json.dumps(connection),
    }

    def airflow(*arguments: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("airflow")), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    airflow("db", "migrate")
    log = airflow("dags", "test", "spark_recovery_gc")
    assert "state=success" in log
    assert "Deleted 1 of 2 jobs" in log
    assert [info.key for info in store.list("")] == ["jobs/young/@job/claims/00000001.json"]
