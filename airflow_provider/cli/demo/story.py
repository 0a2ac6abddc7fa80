"""Run the demo's steps, from an empty folder to a verified result."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow_provider.cli.demo.demo_processes import DemoError, Processes, wait_until
from airflow_provider.cli.demo.local_airflow import LocalAirflow
from airflow_provider.cli.demo.object_server import REGION, Bucket, bucket_at, embedded_bucket
from airflow_provider.cli.demo.observation import JobObserver, kill_driver
from airflow_provider.cli.demo.same_features import differences, features_by_duckdb, features_in
from airflow_provider.core.job import JobId
from airflow_provider.core.quantities import aligned
from airflow_provider.storage.uris import open_store

DAG, TASK, VERTEX = "flights_features", "features", "scored"
KILL_AFTER = 7
"""Recorded partitions of :data:`VERTEX`, of twelve, after which its driver is killed."""
TIMEOUT = 600.0
"""Seconds for each thing that is waited for."""

_begun = time.monotonic()


def say(text: str) -> None:
    """Print a step with the seconds since the demo started."""
    print(f"{time.monotonic() - _begun:6.1f} s  {text}", flush=True)


def tell(processes: Processes, work: Path, dags: Path, arguments: argparse.Namespace) -> None:
    """Run the demo.

    :param work: the folder that the environment of *processes* was made with
    :raises DemoError: it cannot continue, or a check failed
    """
    bucket = start(processes, arguments)
    airflow = LocalAirflow(processes)
    airflow.run("airflow-db", "db", "migrate")
    airflow.add_connections(connections(bucket))
    say("Airflow's database is there, with connections spark_default, aws_default and spark_recovery_default")
    airflow.start(DAG)
    say(f"Airflow is up: {airflow.url}")

    folders = {"input_dir": str(work / "input"), "output_dir": str(work / "features")}
    run_id = airflow.trigger(DAG, {**folders, "months": arguments.months})
    job = JobId.of_task_instance(DAG, run_id, TASK)
    say(f"DAG {DAG} is triggered; its Spark job has the id {job}")

    store = open_store(f"s3://{bucket.name}/events", bucket.storage_options, session=bucket.session)
    observer = JobObserver(store, job)
    scene = Scene(airflow, observer, run_id)
    try:
        missing = scene.interrupt()
        task = scene.retry()
    except DemoError as error:
        raise DemoError(str(error), error.log or airflow.task_log(DAG, run_id, TASK)) from error
    report = airflow.xcom(DAG, run_id, TASK, "return_value")
    print(f"\n{table(report)}\n")
    scene.check(report, missing)

    begun = time.monotonic()
    uninterrupted(processes, dags, work)
    say(
        f"The same script without recovery and without a kill took {time.monotonic() - begun:.0f} s "
        f"where try 2 took {task['duration']:.0f} s"
    )
    rows = features_in(work / "features")
    same("an uninterrupted run", rows, features_in(work / "uninterrupted"))
    same("DuckDB's answer from the same CSV files", rows, features_by_duckdb(work / "input"))
    say("Done")
    print("\n" + look_around(airflow, run_id, stays=arguments.stay), flush=True)


def look_around(airflow: LocalAirflow, run_id: str, *, stays: bool) -> str:
    """Return a text that says where to look next."""
    if not stays:
        return 'To see the page in Airflow\'s UI and press Clear yourself: make demo ARGS="--stay"'
    task = f"{airflow.url}/dags/{DAG}/runs/{quote(run_id)}/tasks/{TASK}"
    return "\n".join(
        [
            "Airflow stays up; nobody asks you to log in:",
            f"  {task}/plugin/spark_recovery",
            "      what survived, what was computed again, and why: the tab 'Spark recovery' of the task",
            f"  {task}",
            "      the logs of both tries. 'Clear' runs the task again, from scratch, because it has succeeded",
            "Ctrl-C ends it.",
        ]
    )


def start(processes: Processes, arguments: argparse.Namespace) -> Bucket:
    """Start the object server, or use the given one."""
    if arguments.endpoint_url:
        bucket = bucket_at(arguments.endpoint_url, arguments.bucket)
    else:
        bucket = embedded_bucket(processes, arguments.bucket)
    say(f"S3-compatible server at {bucket.endpoint_url}, bucket {bucket.name}")
    return bucket


def connections(bucket: Bucket) -> dict[str, dict[str, Any]]:
    """Return the three connections that a user needs."""
    return {
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
        "aws_default": {
            "conn_type": "aws",
            "login": bucket.access_key,
            "password": bucket.secret_key,
            "extra": {"endpoint_url": bucket.endpoint_url, "region_name": REGION},
        },
        "spark_recovery_default": {
            "conn_type": "spark_recovery",
            "extra": {
                "event_store": f"s3://{bucket.name}/events",
                "aws_conn_id": "aws_default",
                "addressing_style": "path",
                "write_buffer_flush_interval": "100 ms",  # a fast machine finishes a vertex in seconds
            },
        },
    }


class Scene:
    """One run of the DAG, its interruption and its retry."""

    def __init__(self, airflow: LocalAirflow, observer: JobObserver, run_id: str) -> None:
        self.airflow = airflow
        self.observer = observer
        self.run_id = run_id

    def interrupt(self) -> list[int]:
        """Kill the first driver in the middle of :data:`VERTEX` and return the missing indexes."""
        wait_until("the vertex to be half done", self._in_the_middle, timeout=TIMEOUT)
        claim = self.observer.claim()
        if claim is None:
            raise DemoError("The job has events, but nobody has claimed it.")
        killed = kill_driver(claim)
        self.observer.look()
        vertex = self.observer.vertex(VERTEX)
        if vertex is None or vertex.finished:
            raise DemoError(f"{VERTEX} was finished before its driver could be killed.")
        stored = {partition.index for partition in self.observer.objects(vertex, claim.epoch)}
        missing = [index for index in range(vertex.initialized.parallelism) if index not in stored]
        say(
            f"Try 1: killed the driver and its spark-submit (SIGKILL, pids {', '.join(map(str, killed))}) with "
            f"{len(stored)} of {vertex.initialized.parallelism} partitions of {VERTEX!r} stored"
        )
        return missing

    def retry(self) -> Mapping[str, Any]:
        """Wait until the scheduler's retry has succeeded and return its task instance."""
        wait_until("the scheduler's retry", self._second_try, timeout=TIMEOUT)
        say("Try 2: started by the scheduler")
        wait_until("the end of the DAG run", self._ended, timeout=TIMEOUT)
        self.observer.look()
        task = self._task()
        if (task["state"], task["try_number"]) != ("success", 2):
            raise DemoError(f"Task {TASK} is in state {task['state']} after try {task['try_number']}.")
        say("Try 2: the task and its DAG run have succeeded")
        return task

    def check(self, report: Mapping[str, Any], missing: Sequence[int]) -> None:
        """Compare what was computed, by the report and by the objects that appeared, with what was missing."""
        by_name = {vertex["name"]: vertex for vertex in report["vertices"]}
        for name in ("clean", "joined"):
            if by_name[name]["computed"] or not by_name[name]["reused"]:
                raise DemoError(
                    f"{name} was complete, but try 2 computed {by_name[name]['computed']} partitions of it."
                )
        vertex = self.observer.vertex(VERTEX)
        computed = [partition.index for partition in self.observer.objects(vertex, 2)] if vertex else []
        if computed != list(missing) or by_name[VERTEX]["computed"] != len(missing):
            raise DemoError(
                f"Partitions {missing} of {VERTEX} were missing, but try 2 stored {computed} "
                f"and reports {by_name[VERTEX]['computed']}."
            )
        if by_name[VERTEX]["reused"] != by_name[VERTEX]["partitions"] - len(missing):
            raise DemoError(f"Try 2 reports {by_name[VERTEX]['reused']} reused partitions of {VERTEX}.")
        say(
            f"Counted in the store: try 2 wrote {len(computed)} partitions of {VERTEX!r}, exactly the missing ones; "
            f"{report['partitions_reused']} partitions were reused"
        )

    def _in_the_middle(self) -> bool:
        self._still_running(1)
        self.observer.look()
        vertex = self.observer.vertex(VERTEX)
        return vertex is not None and len(vertex.partitions) >= KILL_AFTER

    def _second_try(self) -> bool:
        self.observer.look()
        self._still_running(2)
        return len(self.observer.graph.attempts) > 1

    def _ended(self) -> bool:
        self.observer.look()
        return self.airflow.run_state(DAG, self.run_id) in ("success", "failed")

    def _still_running(self, last_try: int) -> None:
        task = self._task()
        if task["try_number"] > last_try or task["state"] in ("success", "failed"):
            raise DemoError(f"Task {TASK} is in state {task['state']}, try {task['try_number']}: too early.")

    def _task(self) -> dict[str, Any]:
        return self.airflow.task_instance(DAG, self.run_id, TASK)


def table(report: Mapping[str, Any]) -> str:
    """Return a table of reused and computed partitions by vertex."""
    header = ("vertex", "partitions", "reused", "computed", "rows", "task s saved")
    rows = [
        (
            vertex["name"],
            *(f"{vertex[count]:,}" for count in ("partitions", "reused", "computed", "rows")),
            f"{vertex['task_seconds_saved']:.1f}",
        )
        for vertex in report["vertices"]
    ]
    return "\n".join(aligned([header, *rows]))


def uninterrupted(processes: Processes, dags: Path, work: Path) -> None:
    """Run the same script with a plain ``spark-submit``."""
    script = str(dags / "flights_features_job.py")
    command = ["spark-submit", "--master", "local[2]", script, str(work / "input"), str(work / "uninterrupted")]
    processes.finish("uninterrupted", processes.start("uninterrupted", command), TIMEOUT)


def same(what: str, rows: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> None:
    """Print that the result equals *what*. :raises DemoError: it does not"""
    found = differences(rows, others)
    if found:
        raise DemoError("\n  ".join([f"The result differs from {what}:", *found[:10]]))
    say(f"The result, {len(rows)} rows, equals {what}")
