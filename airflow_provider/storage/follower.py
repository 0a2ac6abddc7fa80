"""Keep a job's graph up to date while a driver writes: each look reads only new events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from airflow_provider.core.collector import no_collection
from airflow_provider.core.events import JobEvent
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.storage.event_log import JobEventLog, LoggedEvents

_IDLE_LOOKS = 15
"""After how many looks that found nothing new the whole store is looked at."""


def _ignore(_: JobEvent) -> None:
    return


class JobFollower:
    """Follows the events of one job. A look that finds nothing costs one small request.

    :param before: called with each event before it is folded into the graph
    :param after: called with each event after that
    :param begin: called with the graph that a look starts from, after everything was read again
    :param peek_every: number of empty looks after which a listing checks whether a snapshot has replaced the next
        block; for callers that look too rarely to notice otherwise. 0: never
    """

    def __init__(
        self,
        events: JobEventLog,
        *,
        before: Callable[[JobEvent], None] = _ignore,
        after: Callable[[JobEvent], None] = _ignore,
        begin: Callable[[ExecutionGraph], None] = lambda _: None,
        peek_every: int = 0,
    ) -> None:
        self._events = events
        self._before, self._after, self._begin = before, after, begin
        self._peek_every = peek_every
        self._next_block = 0
        self._idle = 0
        self.graph = ExecutionGraph()
        self.version = 0
        """Grows when something new was found."""

    def read(self, *, ended: bool = False) -> None:
        """Read the events written since the last call.

        :param ended: whether the driver has said its last word, though no event has: an empty look checks by a listing
            whether a snapshot has replaced the next block
        :raises StoreError: the store cannot be read; nothing is lost, the next call continues
        """
        if self._next_block == 0:
            logged = self._anew(self._events.load())
        else:
            logged = self._events.read(self._next_block)
            if not logged.events and not logged.problems:
                logged = self._look_beyond(logged, ended)
            elif logged.lost_blocks:
                # Usually nothing is lost: a snapshot has replaced them between two looks, and must be read.
                logged = self._anew(self._events.load())
            else:
                for problem in logged.problems:
                    self.graph.note(problem)
        self._next_block = logged.next_block
        if logged.events or logged.problems:
            self.version += 1
        self._fold(logged)

    def _anew(self, logged: LoggedEvents) -> LoggedEvents:
        self.graph = logged.base()
        self.version += 1
        self._begin(self.graph)
        return logged

    def _look_beyond(self, nothing: LoggedEvents, ended: bool) -> LoggedEvents:
        """Check from time to time whether the next block is missing because a snapshot has already replaced it.

        Or because the whole job was removed, and perhaps started again.
        """
        self._idle += 1
        if self._idle % _IDLE_LOOKS and not self._peek(ended):
            return nothing
        logged = self._events.load()
        replaced = logged.snapshot is not None and logged.snapshot.number > self._next_block
        removed = logged.next_block < self._next_block
        return self._anew(logged) if replaced or removed else nothing

    def _peek(self, ended: bool) -> bool:
        due = ended or (self._peek_every > 0 and self._idle % self._peek_every == 0)
        return due and self._events.replaced(self._next_block)

    def _fold(self, logged: LoggedEvents) -> None:
        losses = deque(logged.losses)
        with no_collection():
            for position in range(len(logged.events) + 1):
                while losses and losses[0][0] == position:
                    self.graph.lose(losses.popleft()[1])
                if position < len(logged.events):
                    event = logged.events[position]
                    self._before(event)
                    self.graph.apply(event)
                    self._after(event)
