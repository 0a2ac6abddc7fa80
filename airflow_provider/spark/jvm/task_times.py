"""Add up the task time of an application, stage by stage, from Spark's events as they happen.

The class ``TaskTimes`` receives job starts and task ends in the JVM's own event thread, so nothing depends on what
Spark forgets later, or on its UI. It reads the purpose of a job from a local property of the thread that started it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from airflow_provider.core.task_time import Stage, StageTimes
from airflow_provider.spark.jvm.compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

PURPOSE = "spark.recovery.purpose"
_OURS = "!"
OURS: Mapping[str, str] = {PURPOSE: _OURS}
"""The local property of jobs that recovery itself starts, which do not count."""


def purpose_property(name: str) -> dict[str, str]:
    """Return the local property of jobs for an output, a step or a vertex."""
    return {PURPOSE: quote(name, safe="")}


class TaskTimes:
    """The tasks of one application, from now on.

    :raises Exception: this version of Spark has other classes than expected, or does not say what a thread's jobs are
        for
    """

    def __init__(self, spark: Any) -> None:
        from py4j.clientserver import ClientServer

        in_pairs = isinstance(spark.sparkContext._gateway, ClientServer)
        if not in_pairs:
            raise LookupError("threads of Python and of Java do not go in pairs")
        self._java = compiled(spark, "TaskTimes", lambda: f"{PURPOSE} {_OURS}")
        self._java.attach(spark._jsc.sc())

    def stages(self) -> StageTimes | None:
        """Return what their stages have taken so far; ``None`` if some tasks were not counted."""
        lines = str(self._java.stages()).splitlines()
        seconds: dict[Stage, float] = {}
        read_by: dict[int, set[Stage]] = {}
        for line in lines[1:]:
            millis, name, *readers = line.split()
            stage = _stage(name)
            seconds[stage] = int(millis) / 1000
            if isinstance(stage, int):
                read_by[stage] = set(map(_stage, readers))
        return StageTimes(seconds, read_by) if lines else None

    def detach(self) -> None:
        """Stop counting."""
        self._java.detach()


def _stage(name: str) -> Stage:
    return unquote(name[1:]) if name.startswith("=") else int(name)
