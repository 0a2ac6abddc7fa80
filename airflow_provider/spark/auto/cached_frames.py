"""Tell the frames that a script caches apart, whichever of its outputs read them.

A frame that is cached has one value, for all outputs that read it; a retry leaves some of these out. So the shuffles
below it that call functions are counted for the frame, and the frame by what it holds and by which time the script has
cached that, in the order of the script, or of the step that caches it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.digest import digest
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.identity.fingerprint import fingerprint
from airflow_provider.spark.jvm.exchanges import cached_plan
from airflow_provider.spark.jvm.queries import calls_python, is_classic
from airflow_provider.spark.jvm.relation import cached_as

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)


def noted_caches(context: RecoveryContext) -> Stages:
    """Note which frame is cached; what is not noted here (SQL's ``CACHE TABLE``) nobody can tell from another."""

    def cache(call: Call, proceed: Proceed) -> Any:
        cached = proceed()
        try:
            _note(context, call.owner)
        except Exception as error:  # noqa: BLE001 - then what is below it, or below a later one, is not kept
            context.cached = None
            log.debug("Cached frames cannot be told from others: %s", one_line(error))
        return cached

    return {Kind.CACHE: cache}


def _note(context: RecoveryContext, df: Any) -> None:
    if not is_classic(df) or not calls_python(df):
        return  # its shuffles need not be counted
    relation, known = cached_as(df), context.application.cached
    if relation is None:
        return
    number, frame = cached_plan(relation), (fingerprint(df, context).digest, context.purposes.own)
    with context.lock:
        if number not in known and context.cached is not None:  # the script may cache what is cached
            context.cached[frame] += 1
            known[number] = digest("cached", *frame, str(context.cached[frame]))
