"""Write the job event store: a buffer, one writer thread, create-only blocks that also fence zombies.

All attempts share one sequence of blocks, and each number can be taken only once. A successor reads the store to its
end and takes the next number. A zombie would write that number or a lower one next, so its write is refused and it
learns that it is fenced; or it wrote first, and the successor reads on. So no block of an older attempt ever follows
the first block of a newer one. Blocks may be deleted once snapshots hold their events; ``storage.compaction`` says why
the argument still holds.

While the store does not answer, events wait in memory and are stored in order once it answers again. Any other write
failure ends the recording, not the job.

Source: FLIP-383's ``JobEventManager`` and ``FileSystemJobEventStore`` (write buffer, flush interval, ``cutBlock``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from airflow_provider.core.errors import (
    AccessDenied,
    ClaimsLost,
    CorruptObject,
    Fenced,
    ObjectExists,
    StoreError,
    StoreUnavailable,
)
from airflow_provider.core.events import AttemptStarted, JobEvent, encode_event
from airflow_provider.core.faults import AFTER_FLUSH, BEFORE_FIRST_EVENT, BEFORE_FLUSH, fault_point
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.overhead import STORING, Overhead
from airflow_provider.storage.blocks import Block, BlockHeader, decode_block, encode_block
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.compaction import Compactor
from airflow_provider.storage.event_log import UNSEALED, JobEventLog, describe, loss_of
from airflow_provider.storage.object_store import ObjectStore, already_there
from airflow_provider.storage.snapshots import Snapshot, Snapshots

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two tries while the store does not answer; each pause is twice the last one."""
_MOST_WAITING = 32 * 1024**2
"""Bytes of events that wait for a store that does not answer: those of hours."""


class JobEventWriter:
    """Appends the events of one attempt.

    :param options: ``write_buffer_size`` (bytes of events that trigger a block) and ``write_buffer_flush_interval``
        (longest time in seconds that an event waits); nothing is written while no event is pending
    :param on_fenced: called once, in the writer thread, with the epoch of the newer owner
    :param on_broken: called once, in the writer thread, with the error that ended the recording
    :param overhead: receives the time spent on writing
    :ivar fenced_by: the attempt that wrote a block in place of this one's, ``None`` if none did
    :ivar away: why events wait in memory, ``None`` while the store takes them
    :ivar outages: how often the store has stopped taking events so far
    :ivar blocks: number of the next block
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        claim: Claim,
        options: RecoveryOptions,
        *,
        on_fenced: Callable[[int], None],
        on_broken: Callable[[StoreError], None],
        overhead: Overhead | None = None,
    ) -> None:
        self._overhead = overhead or Overhead()
        self._store = store
        self._prefix = prefix
        self._claim = claim
        self._options = options
        self._on_fenced = on_fenced
        self._on_broken = on_broken
        self._log = JobEventLog(store, prefix)
        self.blocks = 1
        self._fences: frozenset[int] = frozenset()
        self._compactor = Compactor(store, prefix)
        self._broken: StoreError | None = None
        self.away: StoreError | None = None
        self.outages = 0
        self.fenced_by: int | None = None
        # The condition guards everything below.
        self._changed = threading.Condition()
        self._pending: deque[tuple[float, str]] = deque()
        """When each event came (monotonic seconds), and its line."""
        self._pending_bytes = 0
        self._appended = 0
        self._stored = 0
        self._marked: deque[tuple[int, ExecutionGraph]] = deque()
        """Snapshots to take: after how many of the appended events, and the graph as it was then."""
        self._wanted = 0
        """Flush at least up to this event, without waiting for size or interval."""
        self._closing = False
        self._running = False
        self._thread = threading.Thread(target=self._run, name=f"job-event-writer-{claim.epoch}", daemon=True)

    @property
    def broken(self) -> StoreError | None:
        """The error that ended the recording, ``None`` while recording."""
        return self._broken

    def begin(self, make_first: Callable[[ExecutionGraph], AttemptStarted]) -> ExecutionGraph:
        """Read the store, write this attempt's first block after all others, and start the writer thread.

        :param make_first: creates the first event from the graph that was read; called again if an older attempt wrote
            meanwhile
        :returns: the job's graph, including the first event and the ``problems`` of reading
        :raises Fenced: a newer attempt has written
        :raises StoreError: the store failed; nothing was started
        """
        graph = self._write_first(make_first)
        # A running driver may have deleted the block with this number between our read and our write. Then our block
        # lies in the past, where nothing reads. Only numbers below a snapshot are ever deleted.
        while max(Snapshots(self._store, self._prefix).numbers(), default=0) > self.blocks:
            graph = self._write_first(make_first)
        self._fences |= {self.blocks}
        self.blocks += 1
        self._running = True
        self._thread.start()
        return graph

    def _write_first(self, make_first: Callable[[ExecutionGraph], AttemptStarted]) -> ExecutionGraph:
        """Read the store and write the first block, number ``blocks``, after all others."""
        logged = self._log.replay()
        self._refuse_newer(logged.newest_epoch, logged.newest_owner)
        graph = logged.graph
        self.blocks, self._fences = logged.next_block, logged.fences
        self._compactor.good = logged.snapshot
        fault_point(BEFORE_FIRST_EVENT)
        epochs = {logged.newest_epoch}
        while True:
            first = make_first(graph)
            taken = self._put([encode_event(first)])
            if taken is None:
                break
            if taken.header is not None:
                self._refuse_newer(taken.header.epoch, taken.header.owner)
            for event in taken.events:
                graph.apply(event)
            if taken.problem:
                graph.note(describe(self.blocks, taken))
                graph.lose(loss_of(self.blocks, taken))
            if taken.header is None or taken.header.epoch not in epochs:
                self._fences |= {self.blocks}
                epochs |= {taken.header.epoch} if taken.header is not None else set()
            self.blocks += 1
        graph.apply(first)
        return graph

    def append(self, event: JobEvent) -> None:
        """Queue *event*. Never waits for the store and never raises; once recording has stopped, it is dropped."""
        try:
            line = encode_event(event)
        except Exception as error:  # noqa: BLE001  without this event, the later ones could be misleading
            self._break(error)
            return
        with self._changed:
            self._appended += 1
            if not self._stopped and not self._closing:
                self._pending.append((time.monotonic(), line))
                self._pending_bytes += len(line)
                self._changed.notify_all()

    def snapshot(self, graph: ExecutionGraph) -> None:
        """Request a snapshot of *graph*, the fold of everything appended so far, which must not change any more.

        It is written in the background once all these events are stored.
        """
        with self._changed:
            if not self._stopped and not self._closing and self.away is None:
                self._marked.append((self._appended, graph))
                self._offer_snapshot()

    def flush(self, patience: float = 0.0) -> bool:
        """Wait until everything appended so far is stored (Flink's ``cutBlock``).

        :param patience: seconds to wait for a store that does not answer, in addition to the store's own timeouts
        :returns: whether it is; ``False`` at once if recording has stopped or has not begun
        """
        with self._changed:
            target = self._appended
            self._wanted = max(self._wanted, target)
            self._changed.notify_all()

            def ended() -> bool:
                return self._stored >= target or self._stopped or not self._running

            self._changed.wait_for(lambda: ended() or self.away is not None)
            if patience > 0:
                self._changed.wait_for(ended, patience)
            return self._stored >= target and self._broken is None

    def close(self) -> None:
        """Store pending events and end the writer's threads. Idempotent. Never raises."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is threading.current_thread():
            return
        if self._thread.is_alive():
            self._thread.join()
        self._compactor.close()  # even if recording has stopped: it may be storing an earlier snapshot

    @property
    def _stopped(self) -> bool:
        return self._broken is not None or self.fenced_by is not None

    def _put(self, batch: list[str]) -> Block | None:
        """Write the next block. Return ``None`` if it is stored, else the block that has its number."""
        number = self.blocks
        header = BlockHeader(self._prefix, number, self._claim.epoch, self._claim.owner, len(batch))
        body, key = encode_block(header, batch), self._log.key(number)
        try:
            self._store.put_new(key, body)
        except ObjectExists:
            # Our own block, if the answer to a first request was lost: the owner in the header makes it unique.
            try:
                there = already_there(self._store, key)
            except CorruptObject:
                return UNSEALED
            return None if there == body else decode_block(there, self._prefix, number)
        return None

    def _put_patiently(self, batch: list[str]) -> Block | None:
        """Like :meth:`_put`, but retry while the store does not answer."""
        pause, since = _FIRST_PAUSE, time.monotonic()
        while True:
            try:
                taken = self._put(batch)
            except (StoreUnavailable, AccessDenied) as error:  # expired credentials may be renewed
                if not self._may_wait(error, pause):
                    raise
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            if self.away is not None:
                with self._changed:
                    self.away, waiting = None, len(batch) + len(self._pending)
                log.warning(
                    "The event store answers again after %.0f s; %d events that have waited are stored.",
                    time.monotonic() - since,
                    waiting,
                )
            return taken

    def _may_wait(self, error: StoreError, pause: float) -> bool:
        """Pause before the next try; ``False`` if there is none: at the end, or if too many events wait."""
        with self._changed:
            if self._closing or self._pending_bytes > _MOST_WAITING:
                return False
            first = self.away is None
            self.outages += first
            self.away = error
            self._changed.notify_all()
        if first:
            log.warning(
                "Cannot write to the event store: %s The job continues; its events wait in memory, and nothing new is "
                "stored for a retry until the store answers.",
                error,
            )
        with self._changed:
            self._changed.wait_for(lambda: self._closing, pause)
        return True

    def _refuse_newer(self, epoch: int, owner: str) -> None:
        """Raise if *epoch*, the newest one in the store, means that this attempt must not write."""
        if epoch < self._claim.epoch or (epoch, owner) == (self._claim.epoch, self._claim.owner):
            return
        if epoch > self._claim.epoch and Claims(self._store, self._prefix).taken(epoch):
            raise Fenced(
                f"Attempt {self._claim.epoch} has been replaced by attempt {epoch}.",
                remedy="No action needed: the newer attempt continues the job.",
                epoch=self._claim.epoch,
                newer=epoch,
            )
        # Then the epoch proves nothing: its driver and this one could both believe that they own the job.
        raise ClaimsLost(
            f"Attempt {epoch} has written events of {self._prefix} in {self._store.uri}, but its claim is gone.",
            remedy=f"Run the job again until its attempt is newer than {epoch}. Let nothing delete single objects of a "
            "job, such as a lifecycle rule.",
            epoch=epoch,
        )

    def _run(self) -> None:
        """Run the writer thread, which never ends without reporting it."""
        try:
            while (batch := self._next_batch()) is not None:
                fault_point(BEFORE_FLUSH)
                with self._overhead.on(STORING):
                    taken = self._put_patiently(batch)
                if taken is not None:
                    self._refused(taken)
                    return
                fault_point(AFTER_FLUSH)
                with self._changed:
                    self.blocks += 1
                    self._stored += len(batch)
                    self._offer_snapshot()
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001  whatever it is, recording has ended
            self._break(error)
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()

    def _next_batch(self) -> list[str] | None:
        """Wait for a block's events: a full buffer, or at least one after the interval; ``None`` at the end."""
        with self._changed:
            while not self._stopped:
                wait = self._seconds_until_due()
                if wait is not None and wait <= 0:
                    return self._take()
                if self._closing and not self._pending:
                    return None
                self._changed.wait(wait)
            return None

    def _offer_snapshot(self) -> None:
        """Hand over the snapshot once all its events are stored; the next block is the first that it does not cover."""
        while self._marked and self._marked[0][0] == self._stored:
            _, graph = self._marked.popleft()
            self._compactor.offer(Snapshot(self.blocks, graph, self._fences))

    def _seconds_until_due(self) -> float | None:
        if not self._pending:
            return None
        if self._closing or self._stored < self._wanted or self._pending_bytes >= self._options.write_buffer_size:
            return 0.0
        return self._pending[0][0] + self._options.write_buffer_flush_interval - time.monotonic()

    def _take(self) -> list[str]:
        batch: list[str] = []
        size = 0
        # A block ends at a requested snapshot, so that the snapshot covers all of the block or nothing.
        most = self._marked[0][0] - self._stored if self._marked else len(self._pending)
        while len(batch) < most and self._pending:
            if batch and size + len(self._pending[0][1]) > self._options.write_buffer_size:
                break
            line = self._pending.popleft()[1]
            batch.append(line)
            size += len(line)
        self._pending_bytes -= size
        return batch

    def _refused(self, taken: Block) -> None:
        """Find out what has taken our block's number: a newer attempt, or something that makes the store unusable."""
        newer = taken.header.epoch if taken.header and taken.header.epoch >= self._claim.epoch else 0
        if not newer:
            newest = Claims(self._store, self._prefix).newest()
            newer = newest.epoch if newest and newest.epoch > self._claim.epoch else 0
        if not newer:
            raise StoreError(
                f"Block {self.blocks} of {self._prefix} in {self._store.uri} exists, but no newer attempt has "
                f"written it ({taken.problem or 'it belongs to an older one'}).",
                remedy="Use a prefix that nothing else writes to.",
                key=self._log.key(self.blocks),
            )
        with self._changed:
            self.fenced_by = newer
            self._pending.clear()
            self._marked.clear()
            self._changed.notify_all()
        self._tell(lambda: self._on_fenced(newer))

    def _break(self, cause: BaseException) -> None:
        """Stop recording for good. The job continues, so the reason is reported here once and kept."""
        error = cause if isinstance(cause, StoreError) else StoreError(f"Events cannot be recorded: {cause!r}.")
        with self._changed:
            if self._stopped:
                return
            self._broken = error
            self._pending.clear()
            self._marked.clear()
            self._changed.notify_all()
        log.warning(
            "Recording of %s stops: %s The job goes on; what is not recorded now has to be computed again by a retry.",
            self._prefix,
            error,
        )
        self._tell(lambda: self._on_broken(error))

    @staticmethod
    def _tell(callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("A listener of the job event store failed.")
