"""Find jobs that nobody will resume, and remove them without ever harming a running driver.

A job is garbage if nothing of it has changed for the retention, by the store's own clock; a heartbeat counts as a
change. To remove a job, ``gc`` first claims its next epoch, as a driver would. If another process gets that epoch, the
job is alive and is left alone; a driver that comes later stops the removal by its claim, and waits until the remover's
heartbeat ends. The claims are removed last, the remover's own at the very end, because only they tell a zombie that it
is fenced.
"""

from __future__ import annotations

import itertools
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_provider.core.errors import Fenced, RecoveryError
from airflow_provider.core.job import JOB_FOLDER, name_of
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.task_output import is_kept_folder
from airflow_provider.core.unfinished_write import folders_beside_outputs
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.heartbeat import Heartbeat, heartbeat_key
from airflow_provider.storage.keys import number_of
from airflow_provider.storage.liveness import Life, Liveness
from airflow_provider.storage.object_store import ObjectInfo, ObjectStore

ROOT = "jobs/"
_ORDER = ("partitions", "events", "snapshots", "acks", "discards", "heartbeats", "claims")
"""Partitions first: they are the room. Acknowledgements and discards after events, so that no success looks
unseen and nothing that was discarded looks worth reusing."""
_BETWEEN_CHECKS = 1000
"""How many objects are deleted before the heartbeat is looked at again."""
_RECENT = 600.0
"""Seconds: a heartbeat that was touched later is watched, whatever the retention is."""


@dataclass(frozen=True)
class StoredJob:
    """What one listing reveals of a job.

    :ivar bytes: total size of its objects
    :ivar modified_at: newest change of any object, in seconds since the Unix epoch on the store's clock
    :ivar epoch: newest attempt, 0 if there is no claim
    :ivar acknowledged: whether its success was acknowledged
    """

    prefix: str
    objects: int
    bytes: int
    modified_at: float
    epoch: int
    acknowledged: bool

    @property
    def name(self) -> str:
        """The job's id (see :func:`airflow_provider.core.job.name_of`)."""
        return name_of(self.prefix)


@dataclass(frozen=True)
class Verdict:
    """What will be, or was, done with a job.

    :ivar idle: seconds since its last change
    :ivar action: ``delete`` or ``keep``; ``deleted`` when it is done
    :ivar reason: why it is kept; empty text otherwise
    :ivar beside: folders that the job keeps beside its outputs, which nobody needs once it is deleted; of one that was
        deleted those that could not be
    """

    job: StoredJob
    idle: float
    action: str
    reason: str = ""
    beside: tuple[str, ...] = ()


def stored_jobs(store: ObjectStore) -> Iterator[StoredJob]:
    """Yield all jobs of a store, ordered by name. One paged listing.

    :raises StoreError: the store cannot be read
    """
    marker = f"/{JOB_FOLDER}/"
    ours = (info for info in store.list(ROOT) if marker in info.key)
    for prefix, group in itertools.groupby(ours, key=lambda info: info.key.partition(marker)[0] + f"/{JOB_FOLDER}"):
        yield _job(prefix, list(group))


def store_time(store: ObjectStore) -> float:
    """Return the store's clock, in seconds since the Unix epoch, from a small object that is then removed.

    Only that clock decides ages: this machine's may be wrong by days.
    """
    key = f"gc/{uuid.uuid4().hex}"
    store.put_new(key, b"")
    try:
        return max(info.modified_at for info in store.list(key))
    finally:
        store.delete([key])


def judge(store: ObjectStore, job: StoredJob, now: float, older_than: float, timeout: float) -> Verdict:
    """Decide what to do with a job, without changing anything.

    :param now: the store's clock
    :param older_than: seconds without a change after which a job is garbage
    :param timeout: minimum seconds without a heartbeat change before the driver counts as lost
    """
    idle = now - job.modified_at
    if idle < older_than:
        return Verdict(job, idle, "keep", "younger than the retention")
    claim = Claims(store, job.prefix).get(job.epoch) if job.epoch else None
    recent = claim is not None and not claim.cancels and idle < max(_RECENT, claim.terms.silence)
    if claim is not None and recent and Liveness(store, job.prefix, claim, timeout).wait() is Life.ALIVE:
        return Verdict(job, idle, "keep", "its driver is at work")
    return Verdict(job, idle, "delete", beside=_beside_outputs(store, job))


def remove_job(store: ObjectStore, job: StoredJob, options: RecoveryOptions) -> bool:
    """Remove a job that was judged garbage; return whether it is gone, ``False`` if a driver has resumed it.

    :raises RecoveryError: the store failed; the rest of the job is found again next time
    """
    claim = Claims(store, job.prefix).take(job.epoch + 1, lease=options.lease)
    if claim is None:
        return False
    heartbeat = Heartbeat(store, job.prefix, claim, options.heartbeat_interval, on_fenced=lambda _: None)
    heartbeat.start()
    try:
        heartbeat.confirm()  # with its first beat in the folder, that is not removed as empty
        found = list(store.list(f"{job.prefix}/"))
        store.abort_uploads(f"{job.prefix}/")
        own = (f"{job.prefix}/claims/{claim.epoch:08d}.json", heartbeat_key(job.prefix, claim.epoch))
        keys = sorted(
            (info.key for info in found if info.key not in own), key=lambda key: (_rank(key, job.prefix), key)
        )
        for start in range(0, len(keys), _BETWEEN_CHECKS):
            heartbeat.check()
            store.delete(keys[start : start + _BETWEEN_CHECKS])
        store.forget_folders(f"{job.prefix}/")
    except Fenced:
        return False
    finally:
        heartbeat.stop("FAILED")
    store.delete([own[1]])
    store.delete([own[0]])
    return True


def collect(
    store: ObjectStore,
    *,
    older_than: float,
    delete: bool,
    options: RecoveryOptions,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Verdict]:
    """Judge all jobs of a store, and remove the garbage if *delete*.

    :param older_than: seconds; see :func:`judge`
    :param progress: called with the number of finished jobs and their total
    :raises RecoveryError: the store failed
    """
    now = store_time(store) if delete else time.time()
    jobs = list(stored_jobs(store))
    verdicts = []
    for done, job in enumerate(jobs):
        progress(done, len(jobs))
        verdict = judge(store, job, now, older_than, options.previous_worker_recovery_timeout)
        if delete and verdict.action == "delete":
            gone = remove_job(store, job, options)
            verdict = (
                Verdict(job, verdict.idle, "deleted", beside=tuple(filter(_stays, verdict.beside)))
                if gone
                else Verdict(job, verdict.idle, "keep", "somebody has just taken it up")
            )
        verdicts.append(verdict)
    progress(len(jobs), len(jobs))
    return verdicts


def _beside_outputs(store: ObjectStore, job: StoredJob) -> tuple[str, ...]:
    """Return the folders that a job keeps beside its outputs, as far as its events can be read."""
    try:
        return tuple(folders_beside_outputs(JobEventLog(store, job.prefix).replay().graph.coordinators))
    except RecoveryError:
        return ()


def _stays(folder: str) -> bool:
    """Remove a folder beside an output, if it is on a file system of this machine; whether it may still be there."""
    scheme, _, path = folder.partition(":")
    if scheme != "file" or not is_kept_folder(path):
        return True
    shutil.rmtree(path, ignore_errors=True)
    return Path(path).exists()


def _job(prefix: str, found: Sequence[ObjectInfo]) -> StoredJob:
    epochs = (number_of(info.key, f"{prefix}/claims/", ".json") for info in found)
    return StoredJob(
        prefix,
        objects=len(found),
        bytes=sum(info.size for info in found),
        modified_at=max(info.modified_at for info in found),
        epoch=max((epoch for epoch in epochs if epoch is not None), default=0),
        acknowledged=any(info.key.startswith(f"{prefix}/acks/") for info in found),
    )


def _rank(key: str, prefix: str) -> int:
    folder = key.removeprefix(f"{prefix}/").partition("/")[0]
    return _ORDER.index(folder) if folder in _ORDER else 0
