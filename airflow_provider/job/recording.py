"""A driver's record of its job: the execution graph in memory, and the same events in the store.

One lock makes both one step, so the graph is always the fold of the events in the order in which they are stored. Knows
no Spark.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import cast

from airflow_provider.core.classify import contradiction
from airflow_provider.core.errors import Fenced, StoreError
from airflow_provider.core.events import AttemptStarted, JobEvent, VertexFinished
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.job import is_another_run
from airflow_provider.core.overhead import Overhead
from airflow_provider.core.redaction import redacted_event, secrets_in_conf, secrets_of
from airflow_provider.core.run_request import RunRequest
from airflow_provider.core.snapshot import graph_size, is_due
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.discarding import discard_in_force
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.object_store import ObjectStore

log = logging.getLogger(__name__)


class JobRecord:
    """One attempt's record of its job.

    :param on_fenced: called once, from any thread, with the epoch that took over
    """

    def __init__(self, request: RunRequest, store: ObjectStore, on_fenced: Callable[[int], None]) -> None:
        self.graph = ExecutionGraph()
        self.epoch = 0
        self.lock = threading.RLock()
        self.overhead = Overhead()
        self._request = request
        self._store = store
        self._on_fenced = on_fenced
        self._writer: JobEventWriter | None = None
        self._secrets = secrets_of(os.environ, ()) | request.secrets
        self._fenced = threading.Event()
        self._new = 0
        """Events since the last snapshot."""
        self._held = 0
        """Records that it held."""
        self._vertex_ended = False
        self._snapshot_at = 0.0
        self._snapshot_block = 1

    def keep_secret(self, conf: Mapping[str, str]) -> None:
        """Keep the secrets in Spark's properties out of all records from now on."""
        with self.lock:
            self._secrets |= secrets_in_conf(conf)

    @property
    def usable(self) -> bool:
        """Whether the store records events; if it does not, the job runs without recovery."""
        return self._writer is not None and self._writer.broken is None and self._writer.away is None

    @property
    def outage(self) -> int:
        """The number of the current outage, in which events wait in memory for the store; 0 if there is none."""
        return self._writer.outages if self._writer is not None and self._writer.away is not None else 0

    def begin(self, claim: Claim, fresh: str) -> None:
        """Read the events of earlier attempts, and write this attempt's first block after them.

        Discarded state is not reused even if *fresh* says to resume: that decision may be older than the discard.

        :param fresh: why nothing may be reused; empty text to resume
        :raises RecoveryError: a newer attempt has begun, or the store cannot be used
        """

        def first_event(graph: ExecutionGraph) -> AttemptStarted:
            discarded = discard_in_force(self._store, self._request.job.prefix, graph, claim.epoch)
            given_up, others = fresh or (discarded.reason if discarded is not None else ""), self._of_another_run(graph)
            if others and not given_up:
                given_up = f"attempt {others} was made for another DAG run of the same name"
            abandoned = "" if given_up else graph.must_start_afresh(claim.epoch) or contradiction(graph)
            started = AttemptStarted(
                epoch=claim.epoch,
                at=time.time(),
                fresh=bool(given_up or abandoned),
                abandoned=bool(abandoned),
                reason=given_up or abandoned,
                application=self._request.application.rsplit("/", 1)[-1],
                host=claim.host,
                another_run=bool(others),
                series=self._series(graph),
            )
            return cast("AttemptStarted", redacted_event(started, self._secrets))

        self._writer = JobEventWriter(
            self._store,
            self._request.job.prefix,
            claim,
            self._request.options,
            on_fenced=self.fence,
            on_broken=self._broken,
            overhead=self.overhead,
        )
        self.graph = self._writer.begin(first_event)
        self.graph.bounded = False
        self._snapshot_at, self._snapshot_block = time.monotonic(), self._writer.blocks
        for problem in self.graph.problems:
            log.warning("Job event store: %s", problem)
        # So that later readers need not process again what this attempt has just dealt with.
        self._vertex_ended = bool(self.graph.problems)
        own = self.graph.attempts[claim.epoch]
        if own.abandoned:
            log.error(
                "RECOVERY ABANDONED: %s. Attempt %d reuses nothing and computes the job from scratch.",
                own.reason,
                self.epoch,
            )
        elif own.fresh:
            log.info("Attempt %d starts afresh: %s.", self.epoch, own.reason)

    def _series(self, graph: ExecutionGraph) -> str:
        """Return the series that this attempt shares with those it automatically retries."""
        if not self._request.by_hand:
            return self._request.series
        last = graph.newest.series if graph.newest is not None and self._request.automatic_retry else ""
        return last or uuid.uuid4().hex

    def _of_another_run(self, graph: ExecutionGraph) -> int:
        """Return the newest attempt that recorded its start if it was for another DAG run of the same name, else 0. An
        attempt of this run may have claimed the job since and died before it recorded its start.

        :raises StoreError: the store cannot be read
        """
        newest = graph.newest
        if newest is None or not self._request.run:
            return 0
        claim = Claims(self._store, self._request.job.prefix).get(newest.epoch)
        return newest.epoch if claim is not None and is_another_run(self._request.run, claim.run) else 0

    def add(self, event: JobEvent) -> None:
        """Fold *event*, without secrets, into the graph and queue it for the store; never waits for the store.

        :raises Fenced: a newer attempt is known to own the job
        """
        self.check()
        event = redacted_event(event, self._secrets)
        with self.lock:
            self.graph.apply(event)
            if self._writer is not None:
                self._writer.append(event)
                self._new += 1
                self._vertex_ended |= isinstance(event, VertexFinished)
                self._snapshot_if_due(self._writer)

    def _snapshot_if_due(self, writer: JobEventWriter) -> None:
        if is_due(
            new=self._new,
            held=self._held,
            blocks=writer.blocks - self._snapshot_block,
            elapsed=time.monotonic() - self._snapshot_at,
            min_pause=self._request.options.snapshot_min_pause,
            vertex_ended=self._vertex_ended,
        ):
            writer.snapshot(self.graph.copy())
            self._new, self._held, self._vertex_ended = 0, graph_size(self.graph), False
            self._snapshot_at, self._snapshot_block = time.monotonic(), writer.blocks

    def flush(self, patience: float = 0.0) -> bool:
        """Wait until all events so far are stored (Flink's ``cutBlock``); return whether they are.

        :param patience: seconds to wait for a store that does not answer
        :raises Fenced: a newer attempt owns the job
        """
        confirmed = self._writer is not None and self._writer.flush(patience)
        if self._writer is not None and self._writer.fenced_by is not None:  # its thread may not have reported it yet
            self.fence(self._writer.fenced_by)
        self.check()
        return confirmed

    def close(self) -> None:
        """Store pending events; nothing can be added afterwards."""
        if self._writer is not None:
            self._writer.close()

    def check(self) -> None:
        """Raise :class:`Fenced` if a newer attempt is known to own the job."""
        if self._fenced.is_set():
            raise Fenced(f"A newer attempt owns job {self._request.job}; attempt {self.epoch} stops.")

    def fence(self, newer: int) -> None:
        """Note that attempt *newer* owns the job, and report it once."""
        with self.lock:
            if self._fenced.is_set():
                return
            self._fenced.set()
        log.error(
            "Attempt %d is fenced: attempt %d owns job %s now. This driver stops and commits nothing.",
            self.epoch,
            newer,
            self._request.job,
        )
        self._on_fenced(newer)

    def _broken(self, error: StoreError) -> None:
        log.warning(
            "The event store failed for good: %s The job goes on without recording; "
            "what was recorded so far stays usable for a retry.",
            error,
        )
