"""Where the script has called Spark, for the descriptions of jobs and queries in the Spark UI.

PySpark looks for the frame outside its own package, which is one of ours if the call is intercepted.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from airflow_provider.spark.calls import Call, Kind, Proceed, Stages

_OURS = str(Path(__file__).parents[1])


def call_sites() -> Stages:
    """Return a stage that looks through our own frames."""
    return {Kind.CALL_SITE: _of_the_script}


def _of_the_script(_: Call, proceed: Proceed) -> Any:
    found = proceed()
    if found is None or not str(found.file).startswith(_OURS):
        return found
    outermost = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)][::-1]
    callers = outermost[: outermost.index((found.file, found.linenum))]
    site = next((each for each in reversed(callers) if not each[0].startswith(_OURS)), None)
    return found._replace(file=site[0], linenum=site[1]) if site is not None else found
