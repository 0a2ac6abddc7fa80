"""Stands for a worker and a triggerer: what passes between them goes through JSON, and each has objects of its own."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable
from typing import Any

from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator

Between = Callable[[TaskDeferred], None]


def rebuilt(deferred: TaskDeferred) -> Any:
    """The trigger as the triggerer makes it."""
    path, kwargs = deferred.trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**json.loads(json.dumps(kwargs)))


def first_event(trigger: Any, earliest: float = 0.0) -> Any:
    """The payload of the trigger's event.

    :param earliest: seconds before which it fires none; there is no scheduler here that has to learn of a worker's end
    """
    trigger._earliest = earliest

    async def run() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    return asyncio.run(run())


def deferred_by(call: Callable[[], Any]) -> TaskDeferred:
    """The deferral that *call* ends in."""
    try:
        found = call()
    except TaskDeferred as deferred:
        return deferred
    raise AssertionError(f"it was not deferred but returned {found!r}")


def resume(make: Callable[[], SparkRecoveryOperator], deferred: TaskDeferred, payload: Any, context: Any) -> Any:
    """Go on in another worker."""
    kept = json.loads(json.dumps({**(deferred.kwargs or {}), "event": payload}))
    return make().resume_execution(deferred.method_name, kept, context)


def run_try(
    make: Callable[[], SparkRecoveryOperator], context: Any, between: Between = lambda _: None
) -> tuple[Any, int]:
    """Run one try to its end; return what it returns, and how often it was deferred.

    :param between: called when the task is deferred, before the trigger runs
    """
    call: Callable[[], Any] = lambda: make().execute(context)  # noqa: E731
    for times in range(100):
        try:
            return call(), times
        except TaskDeferred as deferred:
            between(deferred)
            payload = first_event(rebuilt(deferred))
            call = lambda d=deferred, p=payload: resume(make, d, p, context)  # type: ignore[misc]  # noqa: E731
    raise AssertionError("it defers for ever")
