"""What the JVM tells of an error that PySpark raises."""

from __future__ import annotations


def trace_of(error: BaseException) -> str:
    """Return the JVM's stack trace of an error, with those of its causes; empty text if it does not come from there."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    if isinstance(error, CapturedException):
        return str(error._stackTrace)
    return str(error) if isinstance(error, Py4JJavaError) else ""
