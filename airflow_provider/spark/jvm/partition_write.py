"""Write chosen partitions of a physical plan with Spark's own Parquet writer, and hear of each as its task ends.

The writer is called below Spark SQL: no rule of the optimizer, no extension and no setting of the session comes in
between, and a task writes one file, whose name holds its partition's place among the chosen ones. The committer moves
it there when the task commits (algorithm 2), so that it stays whatever becomes of the job.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.execution import local_properties
from airflow_provider.spark.jvm.scala import companion, has_member, to_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "written"
"""Of the write, in the names of its files; what tells writes apart is their folder."""
_CODEC = "zstd"
_ENDING = f"-{_NAME}-c000.{_CODEC}.parquet"
_EMPTY = "_empty.parquet"
_FURTHER = "write$default$12"
"""Gives what Spark 4.0, 4.1 and 4.3 take as a twelfth argument."""
_WRITING = re.compile(
    r"\bat (org\.apache\.parquet\.hadoop\.\w*Writer|\S*(OutputWriter|OutputCommitter|CommitProtocol)\b)"
)
_PROPERTY = "spark.recovery.partition.write"
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.files.maxRecordsPerFile": "0",
}
"""What the writer asks a session for, in the driver and in tasks."""
_HADOOP = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "false",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "parquet.block.size": str(64 * 2**20),
    "parquet.compression.codec.zstd.level": "1",
}


@dataclass(frozen=True)
class WrittenPartition:
    """What a task has written.

    :ivar place: of its partition among those that were chosen
    :ivar task: Spark's task attempt id
    :ivar again: whether Spark has run it before
    :ivar bytes: of the file; 0 if there is none, because there are no rows
    :ivar checksum: CRC-32 of the file, eight hexadecimal digits
    """

    place: int
    task: int
    again: bool
    rows: int
    millis: int
    bytes: int
    checksum: str


class PartitionWriter:
    """Writes to one folder, which may not be there yet.

    :param frame: whose rows are written; its columns have names that Parquet takes
    :param folder: as Hadoop names it
    :param path: of the folder on this machine
    """

    def __init__(self, frame: DataFrame, folder: str, path: Path) -> None:
        spark: Any = frame.sparkSession
        self._spark = spark
        self._jvm = spark._jvm
        self._folder = folder
        self._path = path
        self._schema: Any = frame._jdf.schema().asNullable()
        session = spark._jsparkSession.cloneSession()  # a setting of the session itself would be the script's
        for name, value in _SETTINGS.items():
            session.conf().set(name, value)
        self._session = session
        self._configuration = session.sessionState().newHadoopConf()
        for name in self._configuration.getPropsWithPrefix("parquet.").keySet():
            self._configuration.unset(f"parquet.{name}")  # encryption, bloom filters: the script's outputs are meant
        for name, value in _HADOOP.items():
            self._configuration.set(name, value)
        options = self._jvm.java.util.HashMap()
        options.put("compression", _CODEC)
        self._options = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)

    def write(self, plan: Any, chosen: Sequence[int] | None, take: Callable[[WrittenPartition], object]) -> None:
        """Run the tasks of a physical plan, of all of its partitions or the chosen ones.

        The thread's local properties tell tasks what they need to know of the session's settings.

        :param take: called in another thread for each task that has succeeded, of the last one before this returns
        """
        context = self._spark.sparkContext
        heard = compiled(self._spark, "PartitionWrite", str).hear(
            context._jsc.sc(), _PROPERTY, self._folder, str(self._path), _ENDING
        )

        def listen() -> None:
            while text := str(heard.next()):
                for line in text.splitlines():
                    take(_written(line))

        thread = threading.Thread(target=listen, name="stored-partitions", daemon=True)
        thread.start()
        try:
            with local_properties(context, {**_SETTINGS, _PROPERTY: self._folder}):
                self._run(plan if chosen is None else self._pruned(plan, chosen))
        finally:
            with suppress(Exception):  # the JVM has gone
                heard.end()
            thread.join()

    def path_of(self, place: int) -> Path:
        """Return where the file of a partition lies."""
        return self._path / f"part-{place:05d}{_ENDING}"

    def write_empty(self) -> Path:
        """Write a file without rows to the folder."""
        hadoop = self._jvm.org.apache.hadoop.mapreduce
        job = hadoop.Job.getInstance(self._configuration)
        factory = self._format().prepareWrite(self._session, job, self._options, self._schema)
        task = hadoop.task.TaskAttemptContextImpl(job.getConfiguration(), hadoop.TaskAttemptID())
        factory.newInstance(f"{self._folder}/{_EMPTY}", self._schema, task).close()
        return self._path / _EMPTY

    def _pruned(self, plan: Any, chosen: Sequence[int]) -> Any:
        """Return a plan of the chosen partitions of *plan*, in that order: *chosen* is ascending."""
        jvm = self._jvm
        rdd = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(plan.execute(), to_seq(jvm, list(chosen)).toSet())
        frame = self._spark._jsparkSession.internalCreateDataFrame(rdd, self._schema, False)
        return frame.queryExecution().sparkPlan()

    def _format(self) -> Any:
        return self._jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat()

    def _run(self, plan: Any) -> None:
        jvm = self._jvm
        sources = jvm.org.apache.spark.sql.execution.datasources
        columns = companion(jvm.org.apache.spark.sql.catalyst.types, "DataTypeUtils").toAttributes(self._schema)
        nothing, places = to_seq(jvm, []), companion(jvm.scala.collection.immutable, "Map").empty()
        counting = sources.BasicWriteJobStatsTracker(
            jvm.org.apache.spark.util.SerializableConfiguration(self._configuration),
            companion(sources, "BasicWriteJobStatsTracker").metrics(),
        )
        writer = companion(sources, "FileFormatWriter")
        further = [getattr(writer, _FURTHER)()] if has_member(writer, _FURTHER) else []
        writer.write(
            self._session,
            plan,
            self._format(),
            jvm.org.apache.spark.internal.io.HadoopMapReduceCommitProtocol(_NAME, self._folder, False),
            getattr(sources, "FileFormatWriter$OutputSpec")(self._folder, places, columns),
            self._configuration,
            nothing,
            jvm.scala.Option.empty(),
            to_seq(jvm, [counting]),
            self._options,
            0,
            *further,
        )


def failed_to_write(error: Exception) -> bool:
    """Whether a write failed with what Parquet's writer or the committer met, not with what computing the rows met."""
    return _WRITING.search(str(error)) is not None


def _written(line: str) -> WrittenPartition:
    place, task, attempt, rows, millis, size, checksum = line.split()
    return WrittenPartition(int(place), int(task), attempt != "0", int(rows), int(millis), int(size), checksum)
