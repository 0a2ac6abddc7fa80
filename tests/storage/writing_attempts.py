"""A driver's side of the event store, for tests."""

from __future__ import annotations

from airflow_provider.core.errors import StoreError
from airflow_provider.core.events import AttemptStarted, JobEvent, VertexSkipped
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import PREFIX
from tests.support.stores import WatchedStore

SLOW = RecoveryOptions(write_buffer_flush_interval=3600)
"""Nothing is written but on demand."""
QUICK = RecoveryOptions(write_buffer_flush_interval=0.01)


class Attempt:
    """A driver's side of the event store, with what it was told."""

    def __init__(self, store: ObjectStore, options: RecoveryOptions = SLOW, claim: Claim | None = None) -> None:
        self.claim = claim or Claims(store, PREFIX).claim()
        self.fenced: list[int] = []
        self.broken: list[StoreError] = []
        self.writer = JobEventWriter(
            store, PREFIX, self.claim, options, on_fenced=self.fenced.append, on_broken=self.broken.append
        )

    def begin(self) -> ExecutionGraph:
        return self.writer.begin(lambda graph: AttemptStarted(epoch=self.claim.epoch))

    def event(self, number: int) -> JobEvent:
        return VertexSkipped(epoch=self.claim.epoch, name=f"event {number}", reason="")

    def append(self, *numbers: int) -> None:
        for number in numbers:
            self.writer.append(self.event(number))


def names(events: list[JobEvent]) -> list[str]:
    return [event.name if isinstance(event, VertexSkipped) else type(event).__name__ for event in events]


def block_key(block: int) -> str:
    return f"{PREFIX}/events/{block:010d}.jsonl"


def block_keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list(f"{PREFIX}/events/")]


class FailingStore(WatchedStore):
    """Fails every create-only write from a chosen moment on."""

    def __init__(self, store: ObjectStore, error: BaseException) -> None:
        super().__init__(store, self._fail)
        self.failing = False
        self.error = error

    def _fail(self, operation: str, key: str) -> None:
        if self.failing and operation == "put_new":
            raise self.error
