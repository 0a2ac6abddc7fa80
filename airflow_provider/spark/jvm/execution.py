"""Run chosen partitions of a plan, and nothing else.

``PythonRDD.runJob`` takes a list of partitions, so a retry computes only the missing ones. With adaptive execution the
number of partitions is known only after the shuffle stages have run; :class:`PreparedJob` runs them first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.layout import Layout, describe_layout, pin_reads
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.relation import in_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DESCRIPTION = "spark.job.description"
_AROUND = {"AdaptiveSparkPlanExec": "executedPlan", "ResultQueryStageExec": "plan"}
"""Nodes around the last stage of a plan that adaptive execution has run, and the member that returns it."""
_LEAF_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"


class PreparedJob:
    """A plan whose shuffle stages have run, and whose last stage waits for a choice of partitions."""

    def __init__(self, df: Any) -> None:
        self._df = df
        self._spark = df.sparkSession
        execution = df._jdf.queryExecution()
        self.parallelism = int(execution.toRdd().getNumPartitions())
        self.plan = execution.executedPlan()
        self.layout: Layout = describe_layout(self._spark, self.plan)
        self._pinned = False

    def pin(self, reads: list[list[tuple[int, int]]]) -> bool:
        """Split the last stage as an earlier attempt did; if that is impossible, change nothing, return ``False``."""
        if self.layout.whole_only or len(reads) != len(self.layout.reads):
            return False
        if reads == self.layout.reads:
            return True
        plan = pin_reads(self._spark, self.plan, reads)
        if plan is None:
            return False
        self.plan, self._pinned = plan, True
        self.parallelism = int(plan.execute().getNumPartitions())
        self.layout = describe_layout(self._spark, plan)
        return True

    def last_stage(self) -> Any:
        """Return the physical plan of the last stage, which reads what the stages below have made."""
        plan = self.plan
        while (kind := plan.getClass().getSimpleName()) in _AROUND:
            plan = getattr(plan, _AROUND[kind])()
        return plan

    def _rows(self) -> Any:
        """Return the rows as an RDD that Python can read."""
        if not self._pinned:
            return self._df._jdf.javaToPython()
        struct = jvm_of(self._spark).org.apache.spark.sql.types.DataType.fromJson(self._df.schema.json())
        return self._spark._jsparkSession.internalCreateDataFrame(self.plan.execute(), struct, False).javaToPython()

    def run(self, partitions: Sequence[int]) -> list[Any]:
        """Run the chosen partitions and return their rows: small ones, one or a few per partition."""
        from pyspark.serializers import BatchedSerializer, CPickleSerializer

        try:
            from pyspark.util import _load_from_socket
        except ImportError:  # Spark 3.5
            from pyspark.rdd import _load_from_socket  # type: ignore[import-not-found, no-redef]

        context = self._spark.sparkContext
        wanted = jvm_of(self._spark).java.util.ArrayList()
        for index in partitions:
            wanted.append(int(index))
        answer = jvm_of(self._spark).PythonRDD.runJob(context._jsc.sc(), self._rows(), wanted)
        loaded: Any = _load_from_socket(answer, BatchedSerializer(CPickleSerializer()))  # type: ignore[no-untyped-call]
        with loaded if hasattr(loaded, "__enter__") else nullcontext(loaded) as rows:  # Spark 3.5 returns the rows
            return list(rows)


def in_execution(spark: Any) -> bool:
    """Whether the jobs that this thread starts belong to a SQL execution, whose settings their tasks then know."""
    return spark._jsparkSession.sparkContext().getLocalProperty("spark.sql.execution.id") is not None


def tries_of_a_task(spark_context: Any) -> int:
    """Return how often Spark runs a failing task: ``spark.task.maxFailures``, but once with a local master."""
    return int(spark_context._jsc.sc().taskScheduler().maxTaskFailures())


def micro_batch(spark: Any) -> tuple[str, ...]:
    """Return the streaming query's id, which its checkpoint keeps, and the number of the batch that this thread works
    on; empty outside ``foreachBatch``.

    :param spark: the session; ``None`` for one without a JVM
    """
    if spark is None:
        return ()
    context = spark._jsc.sc()
    found = (context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("streaming.sql.batchId"))
    if all(part is not None for part in found):
        return tuple(str(part) for part in found)
    # A thread that the function has started does not have its properties, but its frames have the query's own session.
    for entry in spark._jsparkSession.sharedState().activeStreamingQueries().entrySet().toArray():
        query = entry.getValue()
        if private_field(query, "sparkSessionForStream").equals(spark._jsparkSession):
            return str(query.id().toString()), str(query.lastExecution().currentBatchId())
    return ()


@contextmanager
def job_properties(context: Any, properties: dict[str, str], *, description: str, tag: str) -> Iterator[None]:
    """Set local properties, description and tag of the jobs started inside; restore the old ones afterwards."""
    with local_properties(context, {**properties, _DESCRIPTION: description}):
        context.addJobTag(tag)
        try:
            yield
        finally:
            context.removeJobTag(tag)


@contextmanager
def local_properties(context: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Set local properties of the jobs started inside; restore the old ones afterwards."""
    before = {name: context.getLocalProperty(name) for name in values}
    for name, value in values.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            context.setLocalProperty(name, old)


def cut_for(df: DataFrame, cores: int) -> tuple[DataFrame, int]:
    """Return *df* with its plan split as on a cluster of *cores* cores (0: this one), and the number in force.

    Scans without a minimum number of partitions, ranges and local relations are all split by this number, which they
    ask their session for. So the plan moves to a copy of the session: all threads of the script would see a change to
    the session itself. Settings of the script's own stay.
    """
    spark: Any = df.sparkSession
    current = int(spark._jsparkSession.leafNodeDefaultParallelism())
    if cores in (0, current) or spark.conf.get(_LEAF_PARALLELISM, None) is not None:
        return df, current
    session = spark._jsparkSession.cloneSession()
    session.conf().set(_LEAF_PARALLELISM, str(cores))
    return in_session(df, session), cores


def trace_of(error: BaseException) -> str:
    """Return the JVM's stack trace of an error, with those of its causes; empty if it does not come from the JVM."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    if isinstance(error, CapturedException):
        told: Any = error
        return str(told._stackTrace if hasattr(told, "_stackTrace") else told.stackTrace)  # the name on Spark 3.5
    return str(error) if isinstance(error, Py4JJavaError) else ""
