"""What a recovery context would have learnt of a script, for tests that need no context."""

from __future__ import annotations

from airflow_provider.spark.functions import FunctionReader
from airflow_provider.spark.watching import Watched


class Learnt:
    """Known to a reader of plans: nothing, until a test puts it in."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.functions = FunctionReader(self.watched.broadcasts)
