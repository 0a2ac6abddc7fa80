"""Write chosen partitions of a physical plan with Spark's own Parquet writer, and report each one as its task ends.

The writer is called below Spark SQL, so no optimizer rule, extension or session setting interferes. Each task writes
one file, whose name holds its partition's index. The committer moves it into place when the task commits (algorithm 2),
so it stays whatever becomes of the job. The tasks are those of the plan's own RDD, so functions that ask for the number
of their partition get the same one in every attempt.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.core.partitions import WRITTEN_FILE
from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.execution import local_properties
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.scala import companion, to_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_, _NAME, _COUNT = WRITTEN_FILE.split("-")
"""The write's part in its files' names; their folder tells writes apart."""
_CODEC = _COUNT.split(".")[1]
_EMPTY = "_empty.parquet"
_WRITING = re.compile(
    r"\bat (org\.apache\.parquet\.hadoop\.\w*Writer|\S*(OutputWriter|OutputCommitter|CommitProtocol)\b)"
    r"|java\.lang\.(NoSuch(Method|Field)|NoClassDefFound|AbstractMethod)Error|CompileException"
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
"""What the writer asks a session for, on the driver and in tasks."""
_HADOOP = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    # S3A's magic committer would keep committed tasks until the job ends, and drop them if it fails.
    "mapreduce.outputcommitter.factory.class": "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "false",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "parquet.block.size": str(64 * 2**20),
    "parquet.compression.codec.zstd.level": "1",
    "parquet.enable.dictionary": "false",  # zstd finds repetitions; building dictionaries costs more than it saves
    "parquet.column.statistics.enabled": "false",  # bounds in a footer have no checksum, and none is used
    "parquet.size.statistics.enabled": "false",
}


@dataclass(frozen=True)
class WrittenPartition:
    """What a task has written.

    :ivar index: of its partition
    :ivar task: Spark's task attempt id
    :ivar again: whether Spark has run it before
    :ivar bytes: of the file; 0 if there is none (there are no rows), or if it is not on this machine
    :ivar checksum: CRC-32 of the file, eight hexadecimal digits; ``-`` if the bytes are 0
    """

    index: int
    task: int
    again: bool
    rows: int
    millis: int
    bytes: int
    checksum: str


class PartitionWriter:
    """Writes to one folder, which need not exist yet.

    :param frame: whose rows are written; its columns have names that Parquet takes
    :param folder: as Hadoop names it
    :param path: of the folder on this machine; ``None`` if the files are not on this machine
    """

    def __init__(self, frame: DataFrame, folder: str, path: Path | None) -> None:
        spark: Any = frame.sparkSession
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._folder = folder
        self._path = path
        self._schema: Any = frame._jdf.schema().asNullable()
        session = spark._jsparkSession.cloneSession()  # a setting of the session itself would be the script's
        for name, value in _SETTINGS.items():
            session.conf().set(name, value)
        configuration = session.sessionState().newHadoopConf()
        for name in configuration.getPropsWithPrefix("parquet.").keySet():
            configuration.unset(f"parquet.{name}")  # encryption, bloom filters: meant for the script's outputs
        for name, value in _HADOOP.items():
            configuration.set(name, value)
        options = self._jvm.java.util.HashMap()
        options.put("compression", _CODEC)
        self._options = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)
        self._sources: Any = self._jvm.org.apache.spark.sql.execution.datasources
        self._format: Any = self._sources.parquet.ParquetFileFormat()
        hadoop = self._jvm.org.apache.hadoop
        self._job: Any = hadoop.mapreduce.Job.getInstance(configuration)
        hadoop.mapreduce.lib.output.FileOutputFormat.setOutputPath(self._job, hadoop.fs.Path(folder))
        self._factory = self._format.prepareWrite(session, self._job, self._options, self._schema)

    def write(self, plan: Any, chosen: Sequence[int], take: Callable[[Sequence[WrittenPartition]], object]) -> None:
        """Run the tasks of the chosen partitions of a physical plan.

        The thread's local properties carry the session settings that tasks need.

        :param take: called in another thread with what successful tasks have written; for the last time before this
            returns
        """
        context = self._spark.sparkContext
        heard = compiled(self._spark, "PartitionWrite", str).hear(
            context._jsc.sc(), _PROPERTY, self._folder, str(self._path or ""), WRITTEN_FILE
        )

        def listen() -> None:
            while text := str(heard.next()):
                take([_written(line) for line in text.splitlines()])

        thread = threading.Thread(target=listen, name="stored-partitions", daemon=True)
        thread.start()
        try:
            with local_properties(context, {**_SETTINGS, _PROPERTY: self._folder}):
                self._run(plan, chosen)
        finally:
            with suppress(Exception):  # the JVM has gone
                heard.end()
            thread.join()

    def path_of(self, index: int) -> Path:
        """Return the path of a partition's file."""
        return self._here() / f"part-{index:05d}{WRITTEN_FILE}"

    def write_empty(self) -> Path:
        """Write a file without rows to the folder."""
        hadoop = self._jvm.org.apache.hadoop.mapreduce
        task = hadoop.task.TaskAttemptContextImpl(self._job.getConfiguration(), hadoop.TaskAttemptID())
        self._factory.newInstance(f"{self._folder}/{_EMPTY}", self._schema, task).close()
        return self._here() / _EMPTY

    def _here(self) -> Path:
        assert self._path is not None  # noqa: S101 - only who has given one asks for it
        return self._path

    def _run(self, plan: Any, chosen: Sequence[int]) -> None:
        jvm, sources = self._jvm, self._sources
        committer = jvm.org.apache.spark.internal.io.HadoopMapReduceCommitProtocol(_NAME, self._folder, False)
        nothing, none = to_seq(jvm, []), jvm.scala.Option.empty()
        no_values = companion(jvm.scala.collection.immutable, "Map").empty()
        one_file_at_a_time = no_values.withDefaultValue(none)
        specification = sources.WriteFilesSpec(self._description(), committer, one_file_at_a_time)
        write = sources.WriteFilesExec(plan, self._format, nothing, none, self._options, no_values)
        partitions = self._spark.sparkContext._gateway.new_array(jvm.int, len(chosen))
        for place, index in enumerate(chosen):
            partitions[place] = index
        committer.setupJob(self._job)
        try:
            write.executeWrite(specification).toJavaRDD().collectPartitions(partitions)
        finally:  # nothing is left to commit: this only removes what tasks have begun
            committer.abortJob(self._job)

    def _description(self) -> Any:
        jvm, sources = self._jvm, self._sources
        columns = companion(jvm.org.apache.spark.sql.catalyst.types, "DataTypeUtils").toAttributes(self._schema)
        configuration = jvm.org.apache.spark.util.SerializableConfiguration(self._job.getConfiguration())
        counted = companion(sources, "BasicWriteJobStatsTracker").metrics()
        return sources.WriteJobDescription(
            _NAME,
            configuration,
            self._factory,
            columns,
            columns,
            to_seq(jvm, []),
            jvm.scala.Option.empty(),
            self._folder,
            companion(jvm.scala.collection.immutable, "Map").empty(),
            0,
            "UTC",
            to_seq(jvm, [sources.BasicWriteJobStatsTracker(configuration, counted)]),
        )


def failed_to_write(error: Exception) -> bool:
    """Whether a write failed in Parquet's writer or the committer, or because this version of Spark lacks what was
    expected, rather than while computing the rows.
    """
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

    lacks = isinstance(error, Py4JError) and not isinstance(error, (Py4JJavaError, Py4JNetworkError))
    return lacks or _WRITING.search(str(error)) is not None


def _written(line: str) -> WrittenPartition:
    index, task, attempt, rows, millis, size, checksum = line.split()
    return WrittenPartition(int(index), int(task), attempt != "0", int(rows), int(millis), int(size), checksum)
