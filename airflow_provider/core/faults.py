"""Named fault points at the commit boundaries, so that tests can kill a real driver at an exact moment.

With ``SPARK_RECOVERY_FAULT=name`` or ``name@3`` in the environment, passing the point for the first or third time sends
SIGKILL to the process in ``SPARK_RECOVERY_FAULT_PID``, or else to this one. (The driver sets that variable, so that a
point in an executor's process on the same machine kills the driver.) A line on standard error first says what is killed
and where, so that a test can tell this end from any other. Without the variable, a point costs one lookup.
"""

from __future__ import annotations

import os
import signal
import time

FAULT = "SPARK_RECOVERY_FAULT"
FAULT_PID = "SPARK_RECOVERY_FAULT_PID"

BEFORE_FIRST_EVENT = "before-first-event"
DURING_RECONCILIATION = "during-reconciliation"
WITHIN_MULTIPART_UPLOAD = "within-multipart-upload"
AFTER_PARTITION_PUT = "after-partition-put"
AFTER_PARTITION_EVENT = "after-partition-event"
BEFORE_FLUSH = "before-flush"
AFTER_FLUSH = "after-flush"
BEFORE_VERTEX_FINISHED = "before-vertex-finished"
AFTER_VERTEX_FINISHED = "after-vertex-finished"
BEFORE_SNAPSHOT = "before-snapshot"
AFTER_SNAPSHOT = "after-snapshot"
AFTER_FAILURE_HANDLED = "after-failure-handled"
AFTER_COORDINATOR_SNAPSHOT = "after-coordinator-snapshot"
AFTER_TASKS_TAKEN = "after-tasks-taken"
AFTER_TASKS_LEFT_OUT = "after-tasks-left-out"
AFTER_COMMIT_MARKED = "after-commit-marked"
AFTER_TASK_GIVEN = "after-task-given"
AFTER_SINK_COMMIT = "after-sink-commit"
AFTER_SPARK_CHECKPOINT = "after-spark-checkpoint"
AFTER_CHECKPOINT_RECORDED = "after-checkpoint-recorded"
BEFORE_JOB_FINISHED = "before-job-finished"
AFTER_JOB_FINISHED = "after-job-finished"

POINTS = tuple(
    point for name, point in list(vars().items()) if name.startswith(("BEFORE_", "DURING_", "WITHIN_", "AFTER_"))
)
OF_SPARK = frozenset(
    {
        AFTER_TASKS_TAKEN,
        AFTER_TASKS_LEFT_OUT,
        AFTER_COMMIT_MARKED,
        AFTER_TASK_GIVEN,
        AFTER_SPARK_CHECKPOINT,
        AFTER_CHECKPOINT_RECORDED,
    }
)
"""Those that only a driver with Spark passes: in a write that goes on where an earlier attempt's was killed, and at
Spark's own checkpoints.
"""
OF_EVERY_DRIVER = tuple(point for point in POINTS if point not in OF_SPARK)

_passed: dict[str, int] = {}


def killed_at(fault: str) -> str:
    """Return the standard error line for *fault* (``name`` or ``name@3``), up to the process id."""
    return f"spark-recovery: fault point {fault} is reached; SIGKILL to process "


def fault_point(name: str) -> None:
    """Kill the driver here if a test asked for it."""
    wanted = os.environ.get(FAULT)
    if not wanted:
        return
    point, _, count = wanted.partition("@")
    if point != name:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] == int(count or 1):
        victim = int(os.environ.get(FAULT_PID) or os.getpid())
        os.write(2, f"{killed_at(wanted)}{victim}\n".encode())
        os.kill(victim, signal.SIGKILL)
        time.sleep(3600)  # an executor's process must not continue after it has killed the driver
