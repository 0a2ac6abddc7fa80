"""Runs the cases of one generated script one after another, and writes down what each of them sees.

A line of JSON for each record, so that what a killed driver has seen can be read, too. Flags of a record say when it
may be compared: ``fresh`` only if no earlier attempt has begun the case (it looks at a state that a later step of the
same case changes), ``layout`` only on the same number of cores.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from canonical import canonical, error_record, rows_record, tidy
from pyspark.sql import DataFrame, SparkSession
from session_state import full_state, light_state, spark_settings_set
from written import written_record

HALT = "DIFFERENTIAL_HALT"
"""Environment variable: ``case/moment`` at which the script waits to be killed."""
TABLES = ("facts", "dims", "events", "logs")


class Recorder:
    """Writes down what one case sees.

    :param data: folder with the tables
    :param out: a folder of the case's own, which later attempts find as it was left
    """

    def __init__(
        self,
        case: str,
        data: str,
        out: str,
        lines: Callable[[dict[str, Any]], None],
        note: Callable[[str, str], None],
    ) -> None:
        self.case, self.data, self.out, self._lines, self._note = case, data, out, lines, note
        self.places = {out: "<out>", data: "<data>", os.getcwd(): "<here>", sys.path[0]: "<script>"}
        self.places |= {str(Path(sys.argv[0]).parent): "<script>"}
        self._taken: dict[str, int] = {}

    def value(self, key: str, value: Any, **flags: bool) -> None:
        self._taken[key] = self._taken.get(key, 0) + 1
        name = key if self._taken[key] == 1 else f"{key} {self._taken[key]}"
        self._lines({"case": self.case, "key": name, "value": canonical(value), "flags": sorted(flags)})

    def rows(self, key: str, rows: Iterable[Any], *, ordered: bool = False, **flags: bool) -> None:
        self.value(key, rows_record(rows, ordered), **flags)

    def frame(self, key: str, frame: DataFrame, *, ordered: bool = False, **flags: bool) -> None:
        self.value(f"{key} schema", frame.schema.simpleString())
        self.rows(key, frame.collect(), ordered=ordered, **flags)

    def text(self, key: str, text: str, **flags: bool) -> None:
        self.value(key, tidy(text, self.places), **flags)

    def shown(self, key: str, action: Callable[[], object], **flags: bool) -> None:
        """What a call prints."""
        caught = io.StringIO()
        with contextlib.redirect_stdout(caught):
            action()
        self.text(key, caught.getvalue(), **flags)

    def written(
        self, key: str, path: str, *, ordered: bool = False, fixed: bool = False, names: bool = False, **flags: bool
    ) -> None:
        """What is in a folder that was written.

        :param fixed: the number of files does not depend on the number of cores
        """
        record = written_record(Path(path), ordered=ordered, names=names)
        layout = record.pop("layout", None)
        self.value(key, record, **flags)
        self.value(f"{key} layout", layout, **(flags if fixed else {**flags, "layout": True}))

    def moment(self, name: str) -> None:
        """A place at which a driver can be killed exactly; nothing otherwise."""
        if os.environ.get(HALT) == f"{self.case}/{name}":
            self._note("begin", f"{self.case}/{name}")
            while True:
                time.sleep(60)

    def error(self, key: str, action: Callable[[], object], **flags: bool) -> None:
        """What a call raises; that it raises nothing is written down as well."""
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - any error is what is compared
            self.value(key, error_record(error, self.places), **flags)
        else:
            self.value(key, {"no error": type(result).__name__}, **flags)


class Script:
    """One generated script: its session, its cases, its files.

    Usage of a script: ``script.py DATA OUT RECORDS PROGRESS``.
    """

    def __init__(self, settings: dict[str, str], *, hive: bool = False) -> None:
        self.data, self.out, self.records, self.progress = sys.argv[1:5]
        self._settings, self._hive = settings, hive
        self._lock = threading.Lock()
        self._file = Path(self.records).open("a", encoding="utf-8")  # noqa: SIM115 - for the life of the process
        self._cases: list[tuple[str, Callable[[SparkSession, str, str, Recorder], None]]] = []

    def session(self) -> SparkSession:
        builder = SparkSession.builder.appName("differential")
        if self._hive:
            builder = builder.enableHiveSupport()
        for name, value in self._settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        return spark

    def case(self, function: Callable[[SparkSession, str, str, Recorder], None]) -> None:
        self._cases.append((function.__name__, function))

    def run(self) -> None:
        spark = self.session()
        start = spark_settings_set(spark)
        state: dict[str, Any] = {}
        for name, function in self._cases:
            spark = self.session()
            self._prepare(spark)
            out = str(Path(self.out) / name)
            Path(out).mkdir(parents=True, exist_ok=True)
            recorder = Recorder(name, self.data, out, self._line, self._note)
            random.seed(42)
            self._note("begin", name)
            try:
                function(spark, self.data, out, recorder)
            except Exception as error:  # noqa: BLE001 - compared as well
                recorder.value("raised", error_record(error, recorder.places))
            spark = self.session()
            state = light_state(spark)
            recorder.value("state", _relative(state, start))
            self._note("end", name)
            self._reset(spark, start)
        random.seed(42)
        recorder = Recorder("the session", self.data, self.out, self._line, self._note)
        for key, value in full_state(spark).items():
            recorder.value(key, value)
        self._note("end", "script")
        spark.stop()

    def _prepare(self, spark: SparkSession) -> None:
        if all(spark.catalog.tableExists(name) for name in TABLES):
            return
        spark.read.parquet(f"{self.data}/facts").createOrReplaceTempView("facts")
        spark.read.parquet(f"{self.data}/dims").createOrReplaceTempView("dims")
        spark.read.schema(EVENTS).option("header", True).csv(f"{self.data}/events").createOrReplaceTempView("events")
        spark.read.schema(LOGS).json(f"{self.data}/logs").createOrReplaceTempView("logs")

    def _reset(self, spark: SparkSession, start: dict[str, str]) -> None:
        """Let the next case begin as if it were the first."""
        for name, value in spark_settings_set(spark).items():
            with contextlib.suppress(Exception):  # another application has settings of its own, which cannot be changed
                if name not in start:
                    spark.conf.unset(name)
                elif start[name] != value:
                    spark.conf.set(name, start[name])
        spark.catalog.clearCache()
        for table in spark.catalog.listTables():
            if table.isTemporary and table.name not in TABLES:
                spark.catalog.dropTempView(table.name)
        for name in ("spark.job.description", "spark.jobGroup.id", "spark.scheduler.pool"):
            spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]

    def _line(self, record: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
            self._file.flush()

    def _note(self, what: str, name: str) -> None:
        with Path(self.progress).open("a") as file:
            file.write(f"{what} {name} {time.monotonic():.3f}\n")


EVENTS = "eid int, k int, kind string, amount decimal(10,2), day date"
LOGS = "lid int, level string, tags array<string>, props struct<host: string, code: int>, k int"


def _relative(state: dict[str, Any], start: dict[str, str]) -> dict[str, Any]:
    """The state with only those settings that the case has changed."""
    changed = {name: value for name, value in state["settings"].items() if start.get(name) != value}
    return {**state, "settings": changed}


def fresh_folder(path: str) -> str:
    """An empty folder."""
    shutil.rmtree(path, ignore_errors=True)
    Path(path).mkdir(parents=True)
    return path
