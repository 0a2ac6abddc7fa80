"""The map stages of a plan that has not run: what Spark would write for a shuffle, and what it would not have to.

Adaptive execution makes a *query stage* of every exchange, from the bottom up, and looks into a cache first, whether
the plan has the same exchange elsewhere. A stage that is put there beforehand is taken for such a one. Its shuffle is
ours to prepare: map outputs that an earlier application has left are registered with the tracker of map outputs, as if
their tasks had just ended, and Spark runs the missing ones only. All that follows is adaptive execution's own: joins
that turn out small, coalesced and skewed partitions, fetch failures.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.layout import Layout, describe_layout
from airflow_provider.spark.jvm.plan_text import PlanText
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import companion, has_member, items
from airflow_provider.spark.jvm.settings import untruncated
from airflow_provider.spark.map_output import MapOutput, Restored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHUFFLE = "ShuffleExchangeExec"
_PARTITIONINGS = frozenset({"HashPartitioning", "SinglePartition"})
"""Others spread rows by chance, or by bounds from a sample."""
_FIRST_STAGE = 1_000_000
"""Ids of our stages begin here; adaptive execution counts from 0."""
_FIRST_TASK = 2**40
"""Map ids of restored outputs begin here; those of tasks count from 0."""
_WRITTEN_WITH = (
    "spark.shuffle.compress",
    "spark.io.compression.codec",
)
"""Settings that decide how shuffle files are written, and have to be the same to read them."""
_SHUFFLE_LINE = re.compile(r"^[\s:+-]*Exchange ", re.MULTILINE)
_PLAN_ID = re.compile(r"plan_id=\d+")
_ROWS = "shuffleRecordsWritten"
_SIZE = "dataSize"
_BYTES = "shuffleBytesWritten"


def why_not(spark: Any) -> str:
    """Say why the shuffle files of this application are not Spark's usual ones; empty text if they are."""
    conf = spark._jsc.sc().conf()
    if conf.get("spark.shuffle.manager", "sort") not in {"sort", "tungsten-sort"}:
        return "another shuffle manager is in use"
    for name, what in {
        "spark.io.encryption.enabled": "they are encrypted with a key of this application",
        "spark.shuffle.push.enabled": "they are merged by another service",
        "spark.shuffle.service.enabled": "they are served by another service",
    }.items():
        if conf.getBoolean(name, False):
            return what
    return "" if conf.get("spark.shuffle.sort.io.plugin.class", "") == "" else "a plugin keeps them elsewhere"


def map_stages(df: DataFrame) -> list[MapStage]:
    """Return the shuffles of *df*'s plan that have no other below, and whose files are Spark's usual ones.

    :param df: its plan has not begun; without adaptive execution it has none
    """
    spark: Any = df.sparkSession
    plan = _adaptive(df)
    if plan is None or not plan.conf().exchangeReuseEnabled() or why_not(spark):
        return []
    exchanges, _ = _lowest(plan.initialPlan())
    found = (MapStage(spark, plan, exchange, number) for number, exchange in enumerate(exchanges))
    return [stage for stage in found if stage.known]


def planned_shuffles(df: DataFrame) -> int:
    """Return how many shuffles stand in *df*'s plan before any has run; 0 without adaptive execution."""
    plan = _adaptive(df)
    return len(_SHUFFLE_LINE.findall(str(plan.initialPlan().treeString()))) if plan is not None else 0


def plan_together(spark: Any, stages: Sequence[MapStage]) -> list[MapStage]:
    """Plan the tasks of several shuffles of one plan, and start to compute what their joins broadcast.

    What several broadcast is computed once: for Spark's planner they are parts of one query, a product of them all.

    :returns: those that are to run: all, but for a shuffle that Spark takes for the same as another
    """
    if not stages:
        return []
    execution = spark._jvm.org.apache.spark.sql.execution
    planner, nothing = companion(execution, "QueryExecution"), spark._jvm.scala.Option.empty()

    def product(left: Any, right: Any) -> Any:
        return execution.joins.CartesianProductExec(left, right, nothing)

    query = functools.reduce(product, [stage.exchange for stage in stages])
    query = planner.prepareForExecution(planner.preparations(spark._jsparkSession, nothing, False), query)
    exchanges = []
    for _ in stages[1:]:
        exchanges.append(query.right())
        query = query.left()
    exchanges.append(query)
    return [stage for stage, exchange in zip(stages, reversed(exchanges), strict=True) if stage.planned(exchange)]


class MapStage:
    """What tasks do in front of one shuffle.

    :ivar exchange: it, as the planner has left it
    :ivar maps: number of its tasks; 0 before :meth:`prepare`
    :ivar shuffle: Spark's number for it, from then on
    :ivar label: for people: by what it shuffles
    """

    def __init__(self, spark: Any, plan: Any, exchange: Any, number: int) -> None:
        self._spark = spark
        self.exchange = exchange
        self._plan = plan
        self._number = number
        self._prepared: Any = None
        self._logical = _logical(exchange.child())
        partitioning = exchange.outputPartitioning()
        kind = partitioning.getClass().getSimpleName().rstrip("$")
        self.known = self._logical is not None and kind in _PARTITIONINGS and not _pruned_while_running(exchange)
        keys = items(partitioning.expressions()) if kind == "HashPartitioning" else ()
        self.label = ", ".join(str(key.name() if has_member(key, "name") else key.prettyName()) for key in keys)
        self.maps = self.shuffle = 0

    @property
    def frame(self) -> DataFrame:
        """The rows for which its tasks work: what they write, or an aggregate whose first step they do."""
        return dataset(self._spark, self._logical)

    def written(self) -> tuple[str, ...]:
        """Return what beside the rows of :attr:`frame` decides what is in the files.

        Which of them its tasks write, in which columns and for which reducers, is told by its physical plan: of an
        aggregate they do the first step, of a join one side.
        """
        conf = self._spark._jsc.sc().conf()
        with untruncated(self._spark):
            tree = str(self.exchange.treeString())
        return (
            PlanText(set()).lines(_PLAN_ID.sub("", tree), ()),
            str(self.exchange.canonicalized().outputPartitioning().toString()),
            str(self.exchange.schema().json()),
            *(conf.get(name, "") for name in _WRITTEN_WITH),
        )

    def rdds(self) -> list[int]:
        """Return the ids of the RDDs that it reads."""
        leaves = (leaf for leaf in items(self._logical.collectLeaves()))
        return [int(leaf.rdd().id()) for leaf in leaves if leaf.getClass().getSimpleName() == "LogicalRDD"]

    def planned(self, exchange: Any) -> bool:
        """Take *exchange* for what it runs, and start to compute what its joins broadcast.

        :returns: ``False`` if it is what another runs
        """
        kind = exchange.getClass().getSimpleName()
        if kind == "ReusedExchangeExec":
            return False
        if kind != _SHUFFLE:
            raise ValueError(f"Spark made a {kind} of a shuffle")
        exchange.prepare()
        self._prepared = exchange
        return True

    def does_the_same_as(self, other: MapStage) -> bool:
        """Whether Spark would run one of the two if they stood in one plan."""
        return bool(self.exchange.canonicalized().equals(other.exchange.canonicalized()))

    def runs_with(self, earlier: MapStage) -> None:
        """Run what *earlier*, of another plan of this application, runs: it is the same, and may be over."""
        self._prepared = earlier._prepared
        self.shuffle, self.maps = earlier.shuffle, earlier.maps

    def prepare(self, cuts: Mapping[int, str]) -> Layout:
        """Return what each of its tasks covers. Waits for what their joins broadcast.

        :param cuts: RDD id → layout, of RDDs that it may read
        """
        self.shuffle = int(self._prepared.shuffleDependency().shuffleId())
        self.maps = int(self._prepared.numMappers())
        return describe_layout(self._spark, self._prepared.child(), cuts)

    def restored_as(self, index: int) -> MapOutput:
        """Return under which name a stored map output is put back."""
        return MapOutput(self.shuffle, _FIRST_TASK + index)

    def register(self, restored: Mapping[int, tuple[str, Restored]]) -> None:
        """Tell Spark of map outputs that have been put back.

        :param restored: index of the map task to the executor that has it, and what it has
        """
        jvm, tracker = self._spark._jvm, self._tracker
        tracker.registerShuffle(self.shuffle, self.maps, int(self._prepared.numPartitions()))
        places = {str(place.executorId()): place for place in self._block_managers()}
        metrics = self._prepared.metrics()
        for index, (executor, output) in restored.items():
            if executor not in places:
                continue
            array = self._spark.sparkContext._gateway.new_array(jvm.long, len(output.sizes))
            packed = struct.pack(f">{len(output.sizes)}q", *output.sizes)
            jvm.java.nio.ByteBuffer.wrap(packed).asLongBuffer().get(array)
            status = self._status(places[executor], array, self.restored_as(index).task)
            tracker.registerMapOutput(self.shuffle, index, status)
            # Adaptive execution takes a stage without rows for an empty relation.
            metrics.apply(_ROWS).add(output.rows)
            metrics.apply(_SIZE).add(output.size)

    def take_place(self) -> None:
        """Let the plan use it in the place of its own."""
        adaptive = self._spark._jvm.org.apache.spark.sql.execution.adaptive
        stage = adaptive.ShuffleQueryStageExec(
            _FIRST_STAGE + self._number, self._prepared, self.exchange.canonicalized()
        )
        self._plan.context().stageCache().put(self.exchange.canonicalized(), stage)

    @property
    def finished(self) -> int:
        """Number of its map outputs that are there."""
        status = self._tracker.shuffleStatuses().get(self.shuffle)
        return int(status.get().numAvailableMapOutputs()) if status.isDefined() else 0

    def outputs(self, but: set[int]) -> Iterator[tuple[int, str, str, MapOutput]]:
        """Yield index, executor, host and name of the map outputs that are there.

        :param but: indexes to leave out
        """
        found = self._tracker.shuffleStatuses().get(self.shuffle)
        if not found.isDefined():
            return
        statuses = found.get().mapStatuses()
        for index in range(self.maps):
            status = None if index in but else statuses[index]
            if status is not None:
                place = status.location()
                output = MapOutput(self.shuffle, int(status.mapId()))
                yield index, str(place.executorId()), str(place.host()), output

    def written_so_far(self) -> tuple[int, int, int]:
        """Return what its tasks have written: rows, their bytes before they are compressed, bytes of files."""
        metrics = self._prepared.metrics()
        rows, size, files = (int(metrics.apply(name).value()) for name in (_ROWS, _SIZE, _BYTES))
        return rows, size, files

    @property
    def _tracker(self) -> Any:
        return self._spark._jvm.org.apache.spark.SparkEnv.get().mapOutputTracker()

    def _block_managers(self) -> Iterator[Any]:
        manager = self._spark._jvm.org.apache.spark.SparkEnv.get().blockManager()
        yield from items(manager.master().getMemoryStatus().keys().toSeq())

    def _status(self, place: Any, sizes: Any, task: int) -> Any:
        status = self._spark._jvm.org.apache.spark.scheduler.MapStatus
        if self._spark.version < "4.1":
            return status.apply(place, sizes, task)
        return status.apply(place, sizes, task, 0)


def _adaptive(df: DataFrame) -> Any:
    """Return *df*'s physical plan if it is adaptive, else ``None``."""
    plan = df._jdf.queryExecution().executedPlan()
    return plan if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec" else None


def _lowest(plan: Any) -> tuple[list[Any], bool]:
    """Return the shuffles without another below, and whether *plan* holds any.

    Those that are part of something broadcast are not among them.
    """
    name = plan.getClass().getSimpleName()
    below = [_lowest(child) for child in items(plan.children())]
    shuffles = any(holds for _, holds in below)
    if name == _SHUFFLE and not shuffles:
        return [plan], True
    if name.startswith("Broadcast") and name.endswith("ExchangeExec"):
        return [], shuffles
    return [exchange for found, _ in below for exchange in found], shuffles


def _logical(plan: Any) -> Any:
    """Return the logical plan for which *plan*, or what it is a part of, was made; ``None`` if there is none."""
    link = plan.logicalLink()
    return link.get() if link.isDefined() else None


def _pruned_while_running(exchange: Any) -> bool:
    """Whether which files it reads follows from another part of the plan, which only adaptive execution can tell."""
    return "SubqueryAdaptiveBroadcast" in str(exchange.toString())
