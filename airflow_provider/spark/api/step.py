"""``step(name, fn, *args)`` runs a function on the driver once per job. Cheap to import."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider.core.errors import ConfigurationError, CorruptObject, ObjectNotFound, StoreError
from airflow_provider.core.events import STEP
from airflow_provider.core.plain_json import json_of
from airflow_provider.core.task_time import AGAIN
from airflow_provider.spark.context import recording, require_name
from airflow_provider.storage.private_files import temporary_folder

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)
T = TypeVar("T")


def step(
    name: str,
    fn: Callable[..., T],
    *args: Any,
    version: str = "",
    save: Callable[[T, Path], None] | None = None,
    load: Callable[[Path], T] | None = None,
) -> T:
    """Run ``fn(*args)`` once per job and return its result; a retry returns the stored result.

    For what a driver does besides DataFrames: training a model, a ``collect`` that decides how to go on, a side effect
    that must not be repeated. A step counts as done once its end is in the event store; if the driver dies before that,
    it runs again. It also runs again if *fn*, what it reaches, or *args* have changed. DataFrames may be among *args*:
    they count by their plan and inputs, as for :func:`airflow_provider.spark.checkpoint`. Without a recovery context
    the function simply runs.

    :param name: a name for people; another function or other arguments may use the same name
    :param version: replaces the comparison of function and arguments: the step is the same while this text is
    :param save: writes a result that is no JSON into an empty local folder; goes with *load*
    :param load: reads what *save* wrote
    :returns: the result; if it is stored as JSON, then as JSON returns it (tuples are lists)
    :raises ConfigurationError: the result is no JSON and there is no *save*, or only one of *save* and *load* is given
    :raises Fenced: a newer attempt owns the job

    Source: FLIP-147's finished tasks, which are never run again however often the rest restarts.
    """
    if (save is None) != (load is None):
        raise ConfigurationError(f"step({name!r}) has only one of save= and load=.", remedy="Give both or none.")
    require_name("step", name)
    context = recording()
    if context is None:
        return fn(*args)
    return _Step(context, name, version).run(fn, args, save, load)


class _Step:
    """One step in one driver."""

    def __init__(self, context: RecoveryContext, name: str, version: str) -> None:
        self._context = context
        self._name = name
        self._version = version

    def run(
        self,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        save: Callable[[T, Path], None] | None,
        load: Callable[[Path], T] | None,
    ) -> T:
        from airflow_provider.spark.identity.step_identity import step_identity

        master = self._context.master
        self._context.application.looks += 1
        identity, opaque = step_identity(self._context, fn, args, self._version)
        self._name = self._context.unique_name(f"{STEP}{self._name}", identity)
        known = master.coordinator(self._name)
        if known is not None and not opaque and known.get("identity") == identity:
            try:
                result: T = self._kept(known, load)
            except (CorruptObject, ObjectNotFound) as error:
                log.warning("%s: what it left cannot be used, so it runs again: %s", self._name, error)
            else:
                log.info("%s: finished in attempt %s, not run again", self._name, known.get("attempt"))
                return result
        elif known is not None:
            why = "; ".join(opaque) or "its function or its arguments have changed"
            log.info("%s runs again: %s", self._name, why)
        elif opaque:
            log.warning(
                "%s will run again at a retry, which cannot tell whether it is the same: %s. If you can tell, say so: "
                'version="…"',
                self._name,
                "; ".join(opaque),
            )
        master.check_now()
        with self._context.purposes.serving(self._name):
            value = fn(*args)
        master.check()
        return self._keep(value, identity, save, again="; ".join(opaque))

    def _kept(self, known: dict[str, Any], load: Callable[[Path], T] | None) -> T:
        if (load is None) == ("files" in known):
            raise CorruptObject("it was kept in another way, with or without save=")
        if load is None:
            kept: T = copy.deepcopy(known["result"])  # the script may change it
            return kept
        with temporary_folder() as folder:
            self._context.state_files.load(known["files"], folder)
            return load(folder)

    def _keep(self, value: T, identity: str, save: Callable[[T, Path], None] | None, again: str) -> T:
        """Store the result.

        :param again: why a retry runs the step again all the same; empty if it does not
        """
        master = self._context.master
        state: dict[str, Any] = {"identity": identity, "attempt": master.epoch, **({AGAIN: again} if again else {})}
        if save is None:
            state["result"] = self._plain(value)
            value = copy.deepcopy(state["result"])
        else:
            with temporary_folder() as folder:
                save(value, folder)
                try:
                    state["files"] = self._context.state_files.save(self._name, master.epoch, folder)
                except StoreError as error:
                    log.warning("%s could not be kept; a retry runs it again: %s", self._name, error)
                    return value
        if master.remember(self._name, state):
            log.info("%s: finished", self._name)
        return value

    def _plain(self, value: Any) -> Any:
        text = json_of(
            value,
            self._name,
            purpose="be kept",
            not_plain="Return plain JSON (texts, numbers, lists, dictionaries), or give save= and load=.",
            too_large="Give save= and load=, or make it a DataFrame and checkpoint it.",
        )
        return json.loads(text)
