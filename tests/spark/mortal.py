"""Attempts that die in this process as a killed driver does: from one event on nothing of them reaches the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from pyspark import SparkContext

from airflow_provider.core.errors import Fenced, StoreError
from airflow_provider.core.events import JobEvent
from airflow_provider.job.job_master import JobMaster
from airflow_provider.job.recording import JobRecord
from airflow_provider.spark.context import RecoveryContext, recovering
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.points.reading import hadoop_root
from airflow_provider.spark.runner import recovered
from airflow_provider.storage.object_store import ObjectInfo, ObjectStore, Readable
from airflow_provider.storage.uris import open_store
from tests.spark.attempts import Attempts


class MortalStore:
    """A store that takes nothing any more once its driver is dead."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.dead = False

    @property
    def uri(self) -> str:
        return self._store.uri

    def _check(self) -> None:
        if self.dead:
            raise StoreError("The driver is dead.")

    def put_new(self, key: str, body: bytes) -> None:
        self._check()
        self._store.put_new(key, body)

    def put(self, key: str, body: bytes) -> None:
        self._check()
        self._store.put(key, body)

    def upload(self, key: str, path: Path, through: Callable[[BinaryIO], Readable] | None = None) -> None:
        self._check()
        self._store.upload(key, path, through)

    def share(self, key: str, path: Path) -> None:
        self._check()
        self._store.share(key, path)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def download(self, key: str, path: Path) -> None:
        self._store.download(key, path)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._store.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self._check()
        self._store.delete(keys)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


class _MortalRecord(JobRecord):
    """Dies instead of adding one event more than it may; then it is as if fenced, so that the script stops."""

    lives_for: int
    store: MortalStore
    spark: SparkContext

    def add(self, event: JobEvent) -> None:
        with self.lock:
            if self.lives_for == 0 and not self.store.dead:
                self.store.dead = True
                self.spark.cancelAllJobs()  # its executors go with it
            self.lives_for -= 1
        super().add(event)

    def check(self) -> None:
        if self.store.dead:
            raise Fenced("The driver is dead.")


@contextmanager
def mortal_attempt(
    attempts: Attempts, spark: SparkContext, lives_for: int, flush_interval: float, *, script: bool = False
) -> Iterator[RecoveryContext]:
    """An attempt that dies after *lives_for* events, wherever that is, or at the latest at its end.

    :param flush_interval: seconds that an event waits in the buffer; what waits there is lost
    :param script: whether calls pass all that those of a script pass, as in :meth:`Attempts.script`
    """
    request = attempts.request()
    request = replace(request, options=replace(request.options, write_buffer_flush_interval=flush_interval))
    store = MortalStore(open_store(request.event_store, request.storage))
    master = JobMaster(request, store, on_fenced=lambda _: None)  # type: ignore[arg-type]
    record = _MortalRecord(request, store, lambda _: None)  # type: ignore[arg-type]
    record.lives_for, record.store, record.spark = lives_for + 2, store, spark  # two events begin an attempt
    master._record = record
    assert master.start()
    context = RecoveryContext(master, hadoop_root(store.uri))
    try:
        with ExitStack() as inside:
            if script:
                inside.enter_context(recovered(context))
            else:
                inside.enter_context(recovering(context))
                inside.enter_context(intercepted(context.notes()))
            yield context
    except Exception:
        if not store.dead:
            raise
    finally:
        store.dead = True
        record.close()
        master.stop_heartbeat("ALIVE")
