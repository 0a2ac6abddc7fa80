"""What whoever triggers a DAG run may say in the run's conf: ``{"spark_recovery": {"resume": "never"}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider.recovery.errors import ConfigurationError

KEY = "spark_recovery"
_RESUME = ("auto", "never")


def run_options(conf: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the options that a run's conf sets, for all of its Spark jobs and all of their tries.

    :raises ConfigurationError: what it says under ``spark_recovery`` is not understood
    """
    if not conf or KEY not in conf:
        return {}
    said = conf[KEY]
    if not isinstance(said, Mapping) or set(said) - {"resume"} or said.get("resume", "auto") not in _RESUME:
        raise ConfigurationError(
            f"The run's conf has {said!r} under {KEY!r}.",
            remedy=f'Trigger the run with {{"{KEY}": {{"resume": "never"}}}}, "auto" or nothing at all.',
        )
    return dict(said)
