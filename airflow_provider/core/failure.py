"""What a failure means, from its chain of causes: may a restart help?

Unrecoverable is only what fails again whatever machine or moment runs it: a script that Python or Spark cannot even
parse, a plan that does not resolve, a wrong option, and whatever the user declares with :class:`UnrecoverableError`.
Everything else may be chance. Only explicit causes count (``raise … from``, Java's ``Caused by``): an error that is
raised while another one is being handled may well be another matter.

Source: Flink's ``ThrowableClassifier`` and ``SuppressRestartsException``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class UnrecoverableError(Exception):
    """Raise this in a script or a function of it to say that no restart and no retry can help."""


@dataclass(frozen=True)
class Cause:
    """One link of a chain of causes.

    :ivar type: class name without package or module
    :ivar condition: Spark's error condition, ``UNRESOLVED_COLUMN.WITH_SUGGESTION`` say; empty if it has none
    :ivar message: its first line
    """

    type: str
    condition: str = ""
    message: str = ""


_UNRECOVERABLE = {
    "UnrecoverableError",
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


def unrecoverable(chain: Iterable[Cause]) -> Cause | None:
    """Return the cause because of which no restart can help, ``None`` if one may."""
    for cause in chain:
        may_appear = cause.type == "AnalysisException" and (
            not cause.condition or cause.condition.startswith(_MAY_APPEAR)
        )
        if cause.type in _UNRECOVERABLE and not may_appear:
            return cause
    return None
