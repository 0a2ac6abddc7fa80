"""An operator that executes with a store of files and a driver that a test writes in a line of Python."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.core.job import JobId
from airflow_provider.operators.spark_recovery import SparkRecoveryOperator
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.uris import open_store
from tests.airflow_side.worker import TASK_INSTANCE
from tests.support.managers import resource_manager

Connect = Callable[..., None]

needs_durable = pytest.mark.skipif(
    importlib.util.find_spec("airflow.sdk.bases.resumablejobmixin") is None,
    reason="upstream's durable mode, and what tells retries from clearings, need Airflow 3.3",
)
needs_lists = pytest.mark.skipif(needs_durable.args[0], reason="Airflow 3.1 finds no connection whose extra is a list")


JOB = JobId.of_task_instance("dag", str(TASK_INSTANCE["run_id"]), "task")


DRIVER = """\
import sys
from airflow_provider.core import events as ev
from airflow_provider.core.run_request import parse_run_arguments
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.uris import open_store

runner = next(i for i, text in enumerate(sys.argv) if text.endswith("spark_recovery_runner.py"))
request = parse_run_arguments(sys.argv[runner + 1 :])
store, prefix = open_store(request.event_store), request.job.prefix
claim = Claims(store, prefix).claim(request.options.lease, request.run)
writer = JobEventWriter(store, prefix, claim, request.options, on_fenced=print, on_broken=print)
writer.begin(lambda _: ev.AttemptStarted(
    epoch=claim.epoch, fresh=bool(request.fresh), reason=request.fresh, series=request.series
))
{end}
writer.close()
"""


FINISHED = "writer.append(ev.JobFinished(epoch=claim.epoch)); writer.flush()"


class State(dict[str, Any]):
    """Airflow's task state store, as far as upstream uses it."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


@pytest.fixture
def submits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make ``spark-submit`` a Python program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(code: str) -> None:
        program = folder / "spark-submit"
        program.write_text(f"#!{sys.executable}\n{code}")
        program.chmod(0o755)

    return make


@pytest.fixture
def operator(tmp_path: Path, connect: Connect) -> Callable[..., SparkRecoveryOperator]:
    script = tmp_path / "job.py"
    script.write_text("print('hello')\n")
    connect("spark_default", "spark", host="local[2]")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})

    def make(**parameters: Any) -> SparkRecoveryOperator:
        return SparkRecoveryOperator(task_id="task", **{"application": str(script), **parameters})

    return make


SERIES = "airflow-0-0-0"
"""Of tries without retries, before their task is cleared."""


def context_of(
    state: State | None = None, *, cleared: int = 0, try_number: int = 1, began: datetime | None = None
) -> Any:
    """The context of one try.

    :param cleared: how often tasks of its run were
    :param began: when its run began
    """
    ti = SimpleNamespace(**TASK_INSTANCE, stats_tags={}, max_tries=0, try_number=try_number)
    return {"ti": ti, "dag_run": SimpleNamespace(clear_number=cleared, start_date=began), "task_state_store": state}


def execute(operator: SparkRecoveryOperator, state: State | None = None, **run: Any) -> Any:
    """Execute one try; its *run* is as for :func:`context_of`."""
    return operator.execute(context_of(state, **run))


Make = Callable[..., SparkRecoveryOperator]


def claims(tmp_path: Path) -> Claims:
    return Claims(open_store(f"file://{tmp_path}/store"), JOB.prefix)


@pytest.fixture
def yarn(operator: Make, connect: Connect, submits: Callable[[str], None]) -> Iterator[Make]:
    """Operators for YARN in cluster mode; ``application_1_3`` is what they submit."""
    known = {
        "application_1_1": ("FINISHED", "SUCCEEDED", ""),
        "application_1_2": ("ACCEPTED", "UNDEFINED", ""),
        "application_1_3": ("FINISHED", "SUCCEEDED", ""),
        "application_1_4": ("FINISHED", "FAILED", "User application exited with status 2"),
    }
    submits(DRIVER.format(end=f"{FINISHED}; print('Submitted application application_1_3')"))
    with resource_manager(known) as manager:
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": manager.address}
        connect("spark_default", "spark", host="yarn", extra=extra)
        yield lambda **parameters: operator(yarn_track_via_rm_api=True, **parameters)


WAITING = """
beat = Heartbeat(store, prefix, claim, request.options.heartbeat_interval, on_fenced=lambda _: os._exit(76))
beat.start()
print("the driver is at work", flush=True)
while not os.path.exists({gate!r}):
    time.sleep(0.05)
print("the driver ends", flush=True)
{end}
beat.stop("FINISHED")
"""
