"""Records the histories of ``tests/recovery/histories``: ``python -m tests.support.record_histories [KIND …]``.

Each is what a real driver that was killed, and the one that took over, wrote into the job event store. A history that
is released is never recorded again: it shows that this release still reads what an older one wrote. A new kind of
crash, or a new event, gets a file of its own.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.core import faults
from airflow_provider.core.events import encode_event
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.job import JobId
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.files import FileObjectStore
from tests.support.driver import DriverHarness

FOLDER = Path(__file__).parents[1] / "core" / "histories"

KINDS = {
    "killed-before-first-event": [faults.BEFORE_FIRST_EVENT],
    "killed-after-partition-put": [f"{faults.AFTER_PARTITION_PUT}@2"],
    "killed-within-upload": [f"{faults.WITHIN_MULTIPART_UPLOAD}@2"],
    "killed-after-partition-event": [f"{faults.AFTER_PARTITION_EVENT}@3"],
    "killed-before-flush": [f"{faults.BEFORE_FLUSH}@3"],
    "killed-after-flush": [f"{faults.AFTER_FLUSH}@3"],
    "killed-before-vertex-finished": [faults.BEFORE_VERTEX_FINISHED],
    "killed-after-vertex-finished": [faults.AFTER_VERTEX_FINISHED],
    "killed-before-snapshot": [faults.BEFORE_SNAPSHOT],
    "killed-after-snapshot": [faults.AFTER_SNAPSHOT],
    "killed-during-reconciliation": [f"{faults.AFTER_PARTITION_EVENT}@8", faults.DURING_RECONCILIATION],
    "killed-after-failure-handled": [faults.AFTER_FAILURE_HANDLED],
    "killed-after-coordinator-snapshot": [f"{faults.AFTER_COORDINATOR_SNAPSHOT}@2"],
    "killed-after-sink-commit": [faults.AFTER_SINK_COMMIT],
    "killed-before-job-finished": [faults.BEFORE_JOB_FINISHED],
    "killed-after-job-finished": [faults.AFTER_JOB_FINISHED],
}
"""The faults of the attempts of each kind; one more attempt follows that is let alone."""

WITH_STEP_AND_FAILURE = {"killed-after-failure-handled", "killed-after-coordinator-snapshot"}


def summary(graph: ExecutionGraph) -> dict[str, object]:
    """Return what a graph tells, as plain JSON that a person can check."""
    return {
        "attempts": {
            str(epoch): {"state": str(a.state), "fresh": a.fresh, "skipped": [skip.name for skip in a.skipped]}
            for epoch, a in graph.attempts.items()
        },
        "vertices": {
            vertex.initialized.name: {
                "parallelism": vertex.initialized.parallelism,
                "finished": vertex.finished,
                "reached_by": sorted(vertex.reached_by),
                "rows": sum(p.rows for p in vertex.partitions.values()),
                "attempt_of_partition": {str(index): p.attempt for index, p in sorted(vertex.partitions.items())},
            }
            for vertex in graph.vertices.values()
        },
        "base_epoch": graph.base_epoch,
        "problems": graph.problems,
    }


def record(kind: str, folder: Path) -> dict[str, object]:
    """Run the attempts of a kind; return the history."""
    driver = DriverHarness(folder, f"file://{folder}/store")
    store, prefix = FileObjectStore(folder / "store"), JobId.parse(driver.job_id).prefix
    log, blocks = JobEventLog(store, prefix), folder / "store" / prefix / "events"
    orders = folder / "orders"
    orders.mkdir()
    rows = range(2000)
    table = pa.table({"customer": [row * 7919 % 300 for row in rows], "amount": [row % 97 for row in rows]})
    pq.write_table(table, orders / "part-0.parquet")
    for fault in [*KINDS[kind], ""]:
        no_snapshots = folder / "store" / prefix / "snapshots"
        if fault != faults.AFTER_SNAPSHOT:  # or blocks would be deleted before they are read here
            shutil.rmtree(no_snapshots, ignore_errors=True)
            no_snapshots.parent.mkdir(parents=True, exist_ok=True)
            no_snapshots.write_text("a file in the place of the folder")
        script = "step_and_failure.py" if kind in WITH_STEP_AND_FAILURE else "two_vertices.py"
        outcome = driver.run(script, str(orders), str(folder / "out"), fault=fault, options={"keep-partitions": ""})
        assert outcome.code == (-9 if fault else 0), outcome.log
    assert len(list(blocks.iterdir())) == log.numbers()[-1], "every block is there"
    lines = [encode_event(event) for event in log.read().events]
    lines = [line.replace(str(folder), "/data").replace(socket.gethostname(), "worker-1") for line in lines]
    events = [json.loads(line) for line in lines]
    return {"kind": kind, "faults": KINDS[kind], "graph": summary(log.replay().graph), "events": events}


def main(kinds: list[str]) -> None:
    """Record the kinds that are named, or all that have no file yet."""
    FOLDER.mkdir(exist_ok=True)
    for kind in kinds or [kind for kind in KINDS if not (FOLDER / f"{kind}.json").exists()]:
        with tempfile.TemporaryDirectory() as folder:
            history = record(kind, Path(folder))
        head = {name: value for name, value in history.items() if name != "events"}
        events = ",\n".join("  " + json.dumps(event, sort_keys=True) for event in history["events"])  # type: ignore[attr-defined]
        text = json.dumps(head, indent=1)[:-2] + f',\n "events": [\n{events}\n ]\n}}\n'
        (FOLDER / f"{kind}.json").write_text(text)
        sys.stdout.write(f"{kind}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
