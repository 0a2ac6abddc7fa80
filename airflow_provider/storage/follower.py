"""A job's graph, kept up to date from outside while a driver writes: every look takes only what is new."""

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
    """Reads the events of one job as they come. A look that finds nothing costs one small request.

    :param before: told of each event before it is folded into the graph
    :param after: told of each event after that
    :param begin: told of the graph that a look begins with, when all that is known was read anew
    :param peek_every: after how many looks that found nothing one listing tells whether a snapshot has replaced the
        next block; for those who look so seldom that the whole store is looked at too late. 0: never
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

    def read(self) -> None:
        """Take what has been written since the last time.

        :raises StoreError: the store cannot be read; nothing is lost, the next call takes it
        """
        if self._next_block == 0:
            logged = self._anew(self._events.load())
        else:
            logged = self._events.read(self._next_block)
            if not logged.events and not logged.problems:
                logged = self._look_beyond(logged)
            elif logged.lost_blocks:
                # Mostly they are no loss: a snapshot has replaced them between two looks, and is to be read.
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

    def _look_beyond(self, nothing: LoggedEvents) -> LoggedEvents:
        """Now and then look whether the next block is only missing because a snapshot has replaced it already.

        Or because the whole job was removed, and perhaps begun again.
        """
        self._idle += 1
        if self._idle % _IDLE_LOOKS and not self._peek():
            return nothing
        logged = self._events.load()
        replaced = logged.snapshot is not None and logged.snapshot.number > self._next_block
        removed = logged.next_block < self._next_block
        return self._anew(logged) if replaced or removed else nothing

    def _peek(self) -> bool:
        due = self._peek_every > 0 and self._idle % self._peek_every == 0
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
