"""Run a script with stand-ins for its actions, and tell what auto mode would do to it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from airflow_provider.recovery.causes import one_line
from airflow_provider.recovery.digest import digest
from airflow_provider.spark.explain.deciding import Seen, decided, decided_whole, plan_only
from airflow_provider.spark.explain.explanation import ExplainedAction, ExplainedNode, Explanation
from airflow_provider.spark.explain.stand_ins import LEFT_ALONE, RETURNS, WHOLE, stand_ins
from airflow_provider.spark.jvm.relation import as_vertex, data_frame
from airflow_provider.spark.runner import find_application, run_script
from airflow_provider.spark.watching import watch
from airflow_provider.spark.wrapping import put_in_place


def explain(application: str, arguments: tuple[str, ...], budget: float, cores: int = 0) -> Explanation:
    """Run a script without its actions; what it prints goes to standard error.

    :param budget: seconds that storing may take for one second of computing
    :param cores: tasks that run side by side where the script is to run; 0: as many as here
    :raises ConfigurationError: there is no such script
    """
    return _Explaining(find_application(application), Seen(budget, cores)).run(arguments)


@contextmanager
def _output_to_error() -> Iterator[None]:
    """Send what this process and those that it starts print to standard error: the script, and Spark's JVM."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


class _Explaining:
    def __init__(self, script: Path, seen: Seen) -> None:
        self._script = script
        self._seen = seen
        self._told = Explanation(script.name)

    def run(self, arguments: tuple[str, ...]) -> Explanation:
        with ExitStack() as stack:
            stack.callback(watch(self._seen.watched))
            self._count_before_stop(stack)
            stack.enter_context(stand_ins(self._tell, self._whole))
            stack.enter_context(_output_to_error())
            error = run_script(self._script, arguments, lambda: None)
        self._count_jobs()
        if error is not None:
            place = self._place_of(error)
            self._told.error = f"{place}: {one_line(error)}" if place else one_line(error)
        return self._told

    def _tell(self, action: str, df: Any, *, how: str, note: str = "") -> None:
        number = len(self._told.actions) + 1
        plan: ExplainedNode | None = None
        if df is not None and hasattr(df, "_jdf") and not df.isStreaming:
            if how == LEFT_ALONE:
                plan = plan_only(df)
            elif how == WHOLE:
                plan = decided_whole(self._seen, number, df)
            else:
                plan = decided(self._seen, number, df, returns_rows=how == RETURNS)
        self._told.actions.append(ExplainedAction(number, action, self._place(), plan, note))

    def _whole(self, df: Any) -> Any:
        """Return what reads *df* from where it would be kept: with the same columns, and nothing below."""
        spark = df.sparkSession
        empty = data_frame(
            spark,
            spark._jsparkSession.createDataFrame(spark.sparkContext._jsc.emptyRDD(), df._jdf.schema()),
        )
        rdd = empty._jdf.queryExecution().analyzed().rdd().id()
        self._seen.watched.local_data[rdd] = digest(df._jdf.queryExecution().analyzed().canonicalized().toString())
        return as_vertex(df, empty, None)

    def _place(self) -> str:
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_filename != str(self._script):
            frame = frame.f_back  # type: ignore[assignment] # it ends with None
        return f"{self._script.name}:{frame.f_lineno}" if frame is not None else ""

    def _place_of(self, error: BaseException) -> str:
        line, frames = 0, error.__traceback__
        while frames is not None:
            if frames.tb_frame.f_code.co_filename == str(self._script):
                line = frames.tb_lineno
            frames = frames.tb_next
        return f"{self._script.name}:{line}" if line else ""

    def _count_before_stop(self, stack: ExitStack) -> None:
        from pyspark import SparkContext

        original = SparkContext.stop

        def stop(context: Any) -> None:
            self._count_jobs()
            original(context)

        stack.callback(put_in_place(SparkContext, "stop", stop))

    def _count_jobs(self) -> None:
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        if context is None or context._jsc is None:
            return
        jobs = context._jsc.sc().statusStore().jobsList(None)
        names = Counter(str(jobs.apply(at).name()).split(" at ")[0] for at in range(jobs.size()))
        self._told.jobs = dict(Counter(self._told.jobs) + names)
