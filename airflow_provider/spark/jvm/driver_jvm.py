"""The driver's JVM as a process: find it, and end it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from airflow_provider.storage.processes import Process, jvm_above, process


def driver_jvm() -> Process | None:
    """Return the JVM that this driver has started, or that has started it; ``None`` if there is none.

    Imports nothing: the heartbeat's thread calls it while the driver may be importing PySpark, which tolerates
    no other import at that moment.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    started = getattr(getattr(context, "_gateway", None), "proc", None)
    if started is not None:
        return process(started.pid) if started.poll() is None else None
    return jvm_above(os.getpid()) if is_submitted() else None


def is_submitted() -> bool:
    """Whether a JVM has started this driver, as ``spark-submit`` does."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def end_jvm(patience: float = 10.0) -> bool:
    """End the driver's JVM at once, by SIGKILL: it need not answer, and can commit nothing any more.

    :returns: whether it is known to have ended within *patience* seconds, or there was none
    """
    running = driver_jvm()
    return running is None or running.kill(patience)


def say_through_jvm(line: str) -> None:
    """Write a line where ``spark-submit`` writes, if that has started this driver.

    What this process prints passes through that JVM, and is lost when the JVM is killed or paused.
    """
    parent = driver_jvm() if is_submitted() else None
    if parent is None:
        return
    with suppress(OSError):
        output = os.open(f"/proc/{parent.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)  # possibly nothing reads it any more
        try:
            os.write(output, f"{line}\n".encode())
        finally:
            os.close(output)
