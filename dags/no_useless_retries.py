"""Retries only where they can help, for any task: `SparkRecoveryRetryPolicy`, for Airflow 3.3.

`SparkRecoveryOperator` already does this. The task here fails at once, without retries, if it does not know the run's
parameter `currency`.
"""

from __future__ import annotations

from airflow.sdk import Param, dag, get_current_context, task

from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.operators.retry_policy import SparkRecoveryRetryPolicy


@dag(
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["example", "spark-recovery"],
    params={"currency": Param("EUR", type="string")},
)
def no_useless_retries() -> None:
    @task(retries=3, retry_policy=SparkRecoveryRetryPolicy())
    def rate() -> float:
        currency = get_current_context()["params"]["currency"]
        if currency not in (known := {"EUR": 1.0, "USD": 1.1}):
            raise UnrecoverableError(f"Nobody knows the currency {currency!r}.")
        return known[currency]

    rate()


no_useless_retries()
