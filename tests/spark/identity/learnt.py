"""What a recovery context would have learnt of a script, for tests that need no context."""

from __future__ import annotations

from collections.abc import Collection

from airflow_provider.spark.application import ApplicationState
from airflow_provider.spark.identity.known import Draws


class Learnt:
    """Known to a reader of plans: nothing, until a test puts it in."""

    def __init__(self) -> None:
        self.application = ApplicationState()
        self.draws = Draws()
        self.source_version = ""

    def state_read(self, what: Collection[str]) -> str:
        return "now"
