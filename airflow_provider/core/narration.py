"""One sentence for each event: for the task log and for the page in Airflow's UI. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_provider.core import events as ev
from airflow_provider.core.failover import ACTION
from airflow_provider.core.overhead import OVERHEAD
from airflow_provider.core.task_time import TASK_TIME


def sentence(event: ev.JobEvent, name: Callable[[str], str]) -> tuple[int, str] | None:
    """Return the level (of :mod:`logging`) and the text of *event*; ``None`` where it says nothing by itself.

    :param name: the name that people know a vertex by, from its identity
    """
    match event:
        case ev.AttemptStarted():
            return logging.INFO, f"Attempt {event.epoch} has started on {event.host or 'an unknown host'}"
        case ev.JobStateChanged():
            return logging.INFO, f"Attempt {event.epoch}: {event.state}"
        case ev.SparkApplicationStarted():
            return logging.INFO, f"Spark application {event.application_id} {event.ui_url}".rstrip()
        case ev.VertexInitialized():
            return (
                logging.INFO,
                f"recovery point {event.name!r}: {event.parallelism} partition{'s' * (event.parallelism != 1)}",
            )
        case ev.VertexFinished():
            return logging.INFO, f"recovery point {name(event.vertex)!r}: finished"
        case ev.VertexReused():
            return logging.INFO, f"recovery point {name(event.vertex)!r}: reused as a whole"
        case ev.VertexReleased():
            return logging.INFO, f"recovery point {name(event.vertex)!r}: released, because all that reads it is stored"
        case ev.VertexSkipped():
            return logging.WARNING, f"recovery point {event.name!r} skipped because {event.reason}"
        case ev.FailureHandled():
            answer = f"vertices restarted: {len(event.restarted)}" if event.restarted else event.refused
            action = event.vertex.removeprefix(ACTION)
            failed = action if event.vertex.startswith(ACTION) else f"recovery point {name(event.vertex)!r}"
            return logging.WARNING, f"{failed} failed: {event.error}; {answer}"
        case ev.CoordinatorSnapshot(coordinator=source, state={"reason": str(reason)}) if source.startswith("source/"):
            return logging.WARNING, f"{source}: pinned anew within the attempt: {reason}"
        case ev.CoordinatorSnapshot(coordinator=source) if source in (OVERHEAD, TASK_TIME):
            return None
        case ev.CoordinatorSnapshot():
            return logging.INFO, f"{event.coordinator}: kept"
        case ev.JobFinished():
            return logging.INFO, f"Attempt {event.epoch}: FINISHED"
        case ev.JobFailed():
            return logging.ERROR, f"Attempt {event.epoch}: FAILED: {event.error}"
    return None
