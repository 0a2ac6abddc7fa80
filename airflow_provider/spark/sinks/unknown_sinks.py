"""Warn when a write is repeated and it is unknown whether an earlier attempt has committed it.

Databases, and tables of formats other than files, do not say which write their rows come from. A retry that adds rows
to them again says so in the task log, with the table's name, or fails, if the job's options say so.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.committed_output import DOUBT
from airflow_provider.core.digest import digest
from airflow_provider.core.errors import Fenced
from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.core.loss import may_be_outdated
from airflow_provider.core.unfinished_write import RETURNED, UNKNOWN_SINK
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.jvm.execution import micro_batch

if TYPE_CHECKING:
    from airflow_provider.job.job_master import JobMaster

log = logging.getLogger(__name__)

_BEGUN = "BEGUN"
_TABLE = "_spark_recovery_table"


class UnknownSinks:
    """The writes of one attempt that add rows where their origin cannot be determined."""

    def __init__(self, master: JobMaster) -> None:
        self._master = master
        self._occurrences: Counter[str] = Counter()
        self._batches: dict[str, str] = {}
        """Streaming query → its first batch that added rows since records were found to be lost."""
        self._lock = threading.Lock()

    def stages(self) -> Stages:
        """Return the stages for ``df.writeTo``, ``df.mergeInto`` and sessions of Spark Connect."""
        return {Kind.TABLE: self._table, Kind.ADD_TO_TABLE: self._add, Kind.CONNECT: self._connect}

    def _table(self, call: Call, proceed: Proceed) -> Any:
        proceed()
        setattr(call.owner, _TABLE, call.argument(1, "table"))

    def _add(self, call: Call, proceed: Proceed) -> Any:
        return self.write(call.owner._spark, f"table {getattr(call.owner, _TABLE, '')}", proceed)

    def _connect(self, _: Call, proceed: Proceed) -> Any:
        log.warning("A session of Spark Connect is not recovered: a retry runs all of its calls again.")
        return self.write(None, "of a Spark Connect session", proceed)

    def write(self, spark: Any, title: str, write: Callable[[], Any], untold: str = "") -> Any:
        """Write; before that, warn if an earlier attempt has written it, or may have.

        :param spark: the session; ``None`` for one without a JVM
        :param untold: why that is unknown, if an earlier attempt may have written it and its rows could not be looked
            up
        :raises UnrecoverableError: it has, or may have, and the job's options forbid to write it again
        """
        name = self._name(spark, title)
        known = self._master.coordinator(name)
        again = known is not None and known.get("attempt") != self._master.epoch
        doubt = ""
        if known is not None and again:
            doubt = self._say(title, _done_by(known))
        elif untold := untold or self.lost(spark, known):
            doubt = self._say(title, untold)
        self._remember(name, title, _BEGUN, doubt)
        result = write()
        self._remember(name, title, RETURNED, doubt)
        return result

    def lost(self, spark: Any, known: dict[str, Any] | None) -> str:
        """Return why an earlier attempt may have written it although no record says so; empty if none has.

        Only the first batch of a streaming query in an attempt may be a repeated one.

        :param known: the record of the write
        """
        why = may_be_outdated(self._master.graph.coordinators, known)
        batch = micro_batch(spark) if why else ()
        with self._lock:
            return why if not batch or self._batches.setdefault(batch[0], batch[1]) == batch[1] else ""

    def _say(self, title: str, what: str) -> str:
        """Warn that a write may be repeated; return the warning."""
        if self._master.request.options.unknown_sinks == "fail":
            raise UnrecoverableError(
                f"sink {title}: {what}. Writing it again may duplicate rows. Check the output, then start afresh "
                "(resume=never), or set unknown_sinks=warn."
            )
        doubt = f"sink {title}: {what}. It is written again; rows may be there twice."
        log.warning("%s", doubt)
        return doubt

    def _name(self, spark: Any, title: str) -> str:
        """Return the name of a write's record: from where it goes, and its position among several."""
        key = digest(title, *micro_batch(spark))
        with self._lock:
            self._occurrences[key] += 1
            return f"{UNKNOWN_SINK}{digest(key, str(self._occurrences[key]))[:32]}"

    def _remember(self, name: str, title: str, status: str, doubt: str) -> None:
        state = {"status": status, "attempt": self._master.epoch, "title": title, DOUBT: doubt}
        try:
            self._master.remember(name, state)
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - the write itself comes out as without this
            log.info("sink %s: cannot record that it is written; a retry may repeat it: %s", title, one_line(error))


def _done_by(known: dict[str, Any]) -> str:
    """Return what an earlier attempt has done."""
    attempt = known.get("attempt")
    if known.get("status") == RETURNED:
        return f"attempt {attempt} has written it"
    return f"attempt {attempt} died while it wrote, and may have committed"
