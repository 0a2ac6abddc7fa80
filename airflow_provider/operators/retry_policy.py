"""A retry policy for any task: no retries if none can help. Needs Airflow 3.3.

``SparkRecoveryOperator`` already ends a task without retries if its driver reports an unrecoverable failure. A task
that runs Spark in another way, for example in a ``@task`` function, gets the same with
``retry_policy=SparkRecoveryRetryPolicy()``.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context, RetryPolicy
from airflow.sdk.definitions.retry_policy import RetryDecision

from airflow_provider.core.causes import causes
from airflow_provider.core.failure import unrecoverable


class SparkRecoveryRetryPolicy(RetryPolicy):
    """Fail at once on errors that no retry can fix (see :mod:`airflow_provider.core.failure`), else as usual."""

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide about a failure."""
        cause = unrecoverable(causes(exception))
        if cause is None:
            return RetryDecision.default()
        return RetryDecision.fail(f"no retry can fix {cause.condition or cause.type}: {cause.message}"[:500])

    def serialize(self) -> dict[str, Any]:
        """Return the parameters, of which there are none."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> SparkRecoveryRetryPolicy:
        """Read what :meth:`serialize` wrote."""
        return cls()
