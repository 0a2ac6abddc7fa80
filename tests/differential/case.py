"""One case of the differential harness: the text of a small PySpark function, and in what kind of script it may run."""

from __future__ import annotations

import hashlib
import textwrap
from dataclasses import dataclass

SHARED, STOPPING, TABLES = "shared", "stopping", "tables"
"""Kinds of scripts: one session for all cases; sessions that are stopped; a catalog that outlives the driver."""


@dataclass(frozen=True)
class Case:
    """A function's body, which sees ``spark``, ``data``, ``out`` and the recorder ``r``.

    :ivar family: what it is about, for the summary
    :ivar kind: the kind of script that it needs
    """

    family: str
    body: str
    kind: str = SHARED

    @property
    def name(self) -> str:
        """A name that stays with the text, whatever else is in the script."""
        digest = hashlib.sha256(self.body.encode()).hexdigest()[:8]
        return f"{self.family}_{digest}"

    def text(self) -> str:
        """The function as it stands in a script."""
        return f"def {self.name}(spark, data, out, r):\n{textwrap.indent(self.body, '    ')}"


def body(text: str) -> str:
    """Return a case's body from an indented literal."""
    return textwrap.dedent(text).strip("\n") + "\n"
