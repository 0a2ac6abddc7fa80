"""Classify a failure by its chain of causes: can a restart help?

A failure is unrecoverable only if it would repeat on any machine at any time: a script that Python or Spark cannot
parse, a plan that does not resolve, a wrong option, and whatever the user declares with :class:`UnrecoverableError`, or
with Airflow's exception for it where the driver has Airflow.
Everything else may be chance. Only explicit causes count (``raise … from``, Java's ``Caused by``): an error raised
while another one is handled may be unrelated.

An action's error is a failure of Spark only if a Spark job has failed: its tasks threw errors, or the scheduler gave it
up. Everything else is up to the script: a plan that Spark rejects, a job that the script cancels.

Source: Flink's ``ThrowableClassifier`` and ``SuppressRestartsException``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


class UnrecoverableError(Exception):
    """Raise this in a script or its functions to declare that neither a restart nor a retry can help."""


@dataclass(frozen=True)
class Cause:
    """One link of a chain of causes.

    :ivar type: class name without package or module
    :ivar condition: Spark's error condition, such as ``UNRESOLVED_COLUMN.WITH_SUGGESTION``; empty text if there is none
    :ivar message: its first line
    """

    type: str
    condition: str = ""
    message: str = ""


_UNRECOVERABLE = {
    "UnrecoverableError",
    "AirflowFailException",
    "ConfigurationError",
    "SyntaxError",
    "IndentationError",
    "TabError",
    "NameError",
    "UnboundLocalError",
    "ParseException",
    "AnalysisException",
}
_MAY_APPEAR = ("TABLE_OR_VIEW", "PATH", "SCHEMA", "CATALOG", "ROUTINE", "UNABLE_TO_INFER_SCHEMA", "UNRESOLVED_ROUTINE")
"""Starts of conditions for what may be there at the next try, because another task makes it, or is not gone yet."""


_FILE_GONE = ("FileNotFoundException", "SparkFileNotFoundException")
_FILE_GONE_CONDITION = "FAILED_READ_FILE.FILE_NOT_EXIST"
"""Spark 4's words for it; 3.5 has an exception of its own."""


def file_gone(chain: Iterable[Cause]) -> bool:
    """Whether the failure is a missing input file."""
    return any(
        cause.type in _FILE_GONE or _FILE_GONE_CONDITION in (cause.condition, *_in_brackets(cause.message))
        for cause in chain
    )


def _in_brackets(message: str) -> list[str]:
    return re.findall(r"\[([A-Z_.]+)\]", message)


def unrecoverable(chain: Iterable[Cause]) -> Cause | None:
    """Return the cause that makes a restart useless, ``None`` if a restart may help."""
    for cause in chain:
        may_appear = cause.type == "AnalysisException" and (
            not cause.condition or cause.condition.startswith(_MAY_APPEAR)
        )
        if cause.type in _UNRECOVERABLE and not may_appear:
            return cause
    return None


_OF_A_JOB = re.compile(
    r"^\s*at org\.apache\.spark\.(?:scheduler\.(?:DAGScheduler|Task)|executor\.Executor\$TaskRunner)\b", re.MULTILINE
)
_CANCELLED = re.compile(r"\bJob \d+ cancelled\b|\bSPARK_JOB_CANCELLED\b|\bOPERATION_CANCELED\b")


def of_a_job(trace: str) -> bool:
    """Whether a JVM stack trace is that of a Spark job that failed and was not cancelled.

    :param trace: the stack trace with those of its causes; empty text if the error has none
    """
    return _OF_A_JOB.search(trace) is not None and _CANCELLED.search(trace) is None
