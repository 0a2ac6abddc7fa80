"""``@task.spark_recovery``: the decorated function is the Spark job.

Its body runs on the driver, with ``spark``; a retry resumes it like any other job; its return value goes to XCom.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    DecoratedOperator,
    TaskDecorator,
    task_decorator_factory,
)

from airflow_provider.airflow.task_script import arguments_of, caller_signature, require_shippable, script_of
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.operators.spark_recovery import SparkRecoveryOperator, job_of
from airflow_provider.storage.private_files import hold, private_folder, write_whole

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

REPORT_KEY = "spark_recovery_report"
"""XCom with the job's report; the function's own value is the task's XCom."""

_OURS = ("application", "application_args", "java_class")


class SparkRecoveryDecoratedOperator(DecoratedOperator, SparkRecoveryOperator):
    """Ship a function's source to the driver and submit it as ``SparkRecoveryOperator`` submits a script.

    :param python_callable: the function; it must be self-contained, and may take ``spark`` and ``sc``
    :param op_args: positional arguments (templated), plain JSON
    :param op_kwargs: keyword arguments (templated), plain JSON
    """

    custom_operator_name = "@task.spark_recovery"

    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *(name for name in SparkRecoveryOperator.template_fields if name not in _OURS),
    )

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if given := [name for name in _OURS if name in kwargs]:
            raise ConfigurationError(
                f"@task.spark_recovery was given {', '.join(given)}.",
                remedy="The function is the application, and it is called with its arguments in the DAG.",
            )
        _prepare(python_callable)
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)

    def execute(self, context: Context) -> Any:
        """Run the function on a driver, or resume it; return its result.

        :raises AirflowFailException: the arguments cannot be shipped, or the configuration is wrong
        :raises AirflowException: the job failed; a retry resumes it
        """
        path = self._shipped(context)
        path.with_suffix(".json").unlink(missing_ok=True)
        return self._concluded(context, path, lambda: super(SparkRecoveryDecoratedOperator, self).execute(context))

    def execute_complete(self, context: Context, event: Any = None, **kept: Any) -> Any:
        """Continue after the trigger has ended; return the function's result.

        :raises AirflowException: see ``SparkRecoveryOperator``
        """
        path = self._shipped(context)
        complete = super().execute_complete
        return self._concluded(context, path, lambda: complete(context, event, **kept))

    def _shipped(self, context: Context) -> Path:
        """Write the script that calls the function and make it the application; return its path."""
        try:
            arguments = arguments_of(self.python_callable, [*self.op_args], self.op_kwargs, context)
            script = script_of(self.python_callable, arguments)
        except ConfigurationError as error:
            raise AirflowFailException(str(error)) from error
        path = _written(script, f"{job_of(context)}\n{script}", self.python_callable.__name__)
        self.application = str(path)
        return path

    def _concluded(self, context: Context, path: Path, run: Callable[[], dict[str, Any] | None]) -> Any:
        # Only a success is sure that no driver needs its script any more, or leaves its result beside it.
        value = self._returned(run(), path.with_suffix(".json"), context)
        shutil.rmtree(path.parent, ignore_errors=True)
        return value

    def _returned(self, report: dict[str, Any] | None, file: Path, context: Context) -> Any:
        """Return the function's result: from the job's events, or else from the file that the driver left."""
        value = (report or {}).pop("returned", None)
        if report is not None:
            context["ti"].xcom_push(key=REPORT_KEY, value=report)
        if value is not None:
            return value["value"]
        if file.is_file():
            return json.loads(file.read_text())
        if report is None and self._get_hook().cluster_mode:
            self.log.warning("Nothing was recorded, and the driver was elsewhere: what the function returned is lost.")
            return None
        raise AirflowException("The Spark job succeeded, but what its function returned is not in the event store.")


def _written(script: str, identity: str, name: str) -> Path:
    """Write the script to a file for this user only; return its path, the same for each try on this machine."""
    folder = hold(private_folder() / f"task-{hashlib.sha256(identity.encode()).hexdigest()[:24]}")
    path = folder / f"{name}.py"
    write_whole(path, script.encode())
    return path


def _prepare(function: Callable[..., Any]) -> None:
    require_shippable(function)
    # Airflow checks calls against the signature, so it must not contain the parameters that the driver fills in.
    function.__signature__ = caller_signature(function)  # type: ignore[attr-defined]


def spark_recovery_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """Turn a function into a task that runs on its own Spark driver and that a retry resumes.

    :param python_callable: the function
    :param multiple_outputs: push each entry of a returned dictionary as a separate XCom
    :param kwargs: parameters of :class:`airflow_provider.operators.spark_recovery.SparkRecoveryOperator`
    :raises ConfigurationError: the function is not self-contained
    """
    if python_callable is None:
        return lambda function: spark_recovery_task(function, multiple_outputs, **kwargs)  # type: ignore[return-value]
    _prepare(python_callable)
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=SparkRecoveryDecoratedOperator,
        **kwargs,
    )
