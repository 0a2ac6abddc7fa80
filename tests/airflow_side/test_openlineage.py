"""OpenLineage in the driver is upstream's, and passes through the wrapping unharmed."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator
from tests.airflow_side.executing import DRIVER, FINISHED, Connect
from tests.airflow_side.worker import TASK_INSTANCE

TRANSPORT = {"type": "http", "url": "http://127.0.0.1:9", "endpoint": "api/v1/lineage"}


def confs(line: list[str]) -> list[str]:
    """What ``--conf`` gives."""
    return [value for flag, value in itertools.pairwise(line) if flag == "--conf"]


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_driver_gets_the_openlineage_properties_that_upstream_gives(
    submits: Any, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Parent job, root job and transport are in the command line, with the same values, and once; so is the name."""
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(TRANSPORT))
    script = tmp_path / "job.py"
    script.write_text("print('hello')\n")
    connect("spark_default", "spark", host="local[2]" if mode == "client" else "yarn", extra={"deploy-mode": mode})
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})
    line = tmp_path / "line"
    keep = f"import json, sys; json.dump(sys.argv, open({str(line)!r}, 'w'))\n"
    submits(keep + DRIVER.format(end=FINISHED))
    run = SimpleNamespace(logical_date=datetime(2026, 1, 1, tzinfo=UTC), conf={}, clear_number=0)
    instance = SimpleNamespace(**TASK_INSTANCE, try_number=2, stats_tags={}, dag_run=run)
    instance.get_template_context = lambda: {"dag_run": run}
    context = cast("Any", {"ti": instance, "dag_run": run})

    lines = {}
    for kind in (SparkRecoveryOperator, SparkSubmitOperator):
        if kind is SparkSubmitOperator:
            submits(keep)
        kind(
            task_id="task",
            application=str(script),
            conf={"spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener"},
            name="sessions",
            openlineage_inject_parent_job_info=True,
            openlineage_inject_transport_info=True,
            durable=False,
        ).execute(context)
        lines[kind] = json.loads(line.read_text())

    ours, upstreams = lines[SparkRecoveryOperator], lines[SparkSubmitOperator]
    lineage = [conf for conf in confs(upstreams) if "openlineage" in conf.lower()]
    assert any(conf.startswith("spark.openlineage.parentRunId=") for conf in lineage)
    assert any(conf.startswith("spark.openlineage.rootParentRunId=") for conf in lineage)
    assert "spark.openlineage.transport.url=http://127.0.0.1:9" in lineage
    assert "spark.extraListeners=io.openlineage.spark.agent.OpenLineageSparkListener" in lineage
    assert [conf for conf in confs(ours) if "openlineage" in conf.lower()] == lineage
    assert ours[ours.index("--name") + 1] == upstreams[upstreams.index("--name") + 1] == "sessions"
