"""The retry policy ends a task that no retry can help, and leaves everything else to Airflow."""

from __future__ import annotations

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.definitions.retry_policy import RetryAction

from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.operators.retry_policy import SparkRecoveryRetryPolicy


def test_unrecoverable_errors_end_the_task() -> None:
    """With the reason, which Airflow shows with the task instance."""
    decision = SparkRecoveryRetryPolicy().evaluate(NameError("name 'x' is not defined"), 1, 3)
    assert decision.action is RetryAction.FAIL
    assert "NameError" in str(decision.reason)
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = UnrecoverableError("wrong key")
    assert SparkRecoveryRetryPolicy().evaluate(wrapped, 1, 3).action is RetryAction.FAIL


def test_everything_else_is_airflows_matter() -> None:
    """Retries, delay and back-off as the task has them."""
    assert SparkRecoveryRetryPolicy().evaluate(ValueError("by chance"), 1, 3).action is RetryAction.DEFAULT


def test_a_task_takes_it_and_a_dag_with_it_serialises() -> None:
    """As ``retry_policy=``, and through its own serialised form."""
    policy = SparkRecoveryRetryPolicy()
    with DAG("d"):
        task = BaseOperator(task_id="t", retry_policy=policy)
    assert task.retry_policy is policy
    assert isinstance(SparkRecoveryRetryPolicy.deserialize(policy.serialize()), SparkRecoveryRetryPolicy)
