# ruff: noqa: F811 - fixtures are named like the parameters that ask for them
"""``@task.spark_recovery``: which functions and arguments can go to a driver, and that real ones do, killed or not."""

from __future__ import annotations
import __future__

import functools
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG, task
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from airflow_provider.airflow.task_script import arguments_of, require_shippable, script_of
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.operators.decorated import REPORT_KEY, SparkRecoveryDecoratedOperator, spark_recovery_task
from tests.airflow_side import task_functions
from tests.airflow_side.conftest import Tries, xcom
from tests.airflow_side.deferring import run_try
from tests.airflow_side.executing import DRIVER, FINISHED, WAITING, Connect, submits  # noqa: F401 - fixture
from tests.airflow_side.worker import TASK_INSTANCE

SIZE = 3
RETURNED = (
    'writer.append(ev.CoordinatorSnapshot(epoch=1, coordinator="function/returned", '
    'state={"attempt": 1, "value": [1, None]}))\n'
)


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function is given on the driver, when its script runs with a stand-in for the driver's side."""
    given = arguments_of(function, args, kwargs, {"ds": "2026-01-01", "ti": object()})
    namespace: dict[str, Any] = {"__name__": "script"}
    exec(compile(script_of(function, given), "script", "exec"), namespace)
    return namespace[function.__name__](**given)


# -- which functions ---------------------------------------------------------------------------------------------------


def test_a_function_and_its_arguments_survive_the_shipping() -> None:
    """Defined in a function, with texts over lines, defaults from outside and annotations that the driver lacks."""

    def report(name: Tries, size: int = SIZE, *, ds: str, flag: bool = SIZE > 2, **more: Any) -> str:
        """A docstring
        over lines.
        """
        text = """no
    dedent"""

        class Inner:
            size = 1
            twice = size * 2

        return repr((name, size, ds, flag, more, text, Inner.twice))

    require_shippable(report)
    expected = ("it's", 3, "2026-01-01", True, {"x": [1, {"y": None}]}, "no\n    dedent", 2)
    assert called(report, "it's", x=(1, {"y": None})) == repr(expected)


def test_a_function_keeps_its_lines_whatever_its_arguments() -> None:
    """Else its functions would look changed at the next try, and a mapped task's traceback would mislead."""
    scripts = [script_of(task_functions.totals, {"source": text}) for text in ("a", "a\nb\n" * 50)]
    assert scripts[0].splitlines()[:-1] == scripts[1].splitlines()[:-1]


def test_annotations_inside_are_as_in_the_dags_file() -> None:
    """Postponed only if they are there: pandas UDFs look at them."""
    assert "from __future__ import annotations" in script_of(task_functions.totals, {})
    source = "def f(spark):\n    def g(x: int): pass\n    return g.__annotations__['x'] is int\n"
    namespace: dict[str, Any] = {}
    code = compile(source, "<string>", "exec", dont_inherit=True)
    assert not code.co_flags & __future__.annotations.compiler_flag
    exec(code, namespace)
    require_shippable(namespace["f"])


def closing_over() -> Callable[..., Any]:
    limit = 3

    def closed(spark: Any) -> int:
        return limit

    return closed


def starred(*values: Any) -> None: ...


def positional(value: int, /) -> None: ...


async def coroutine(spark: Any) -> None: ...


def generator(spark: Any) -> Any:
    yield 1


@functools.wraps(task_functions.totals)
def wrapper(*args: Any, **kwargs: Any) -> Any:
    return task_functions.totals(*args, **kwargs)


def inner_global(spark: Any) -> Any:
    return [SIZE for _ in range(3)]


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (closing_over(), "'closed' closes over 'limit'"),
        (task_functions.dumped, "'dumped' uses 'json' from outside of it. Only the function's own source goes"),
        (inner_global, "uses 'SIZE' from outside of it"),
        (starred, "takes 'values', which cannot be passed by its name"),
        (positional, "takes 'value', which cannot be passed by its name"),
        (coroutine, "'coroutine' is a coroutine or a generator"),
        (generator, "'generator' is a coroutine or a generator"),
        (wrapper, "'totals' has another decorator below @task.spark_recovery"),
        (lambda spark: 1, "which is not a function made with 'def'"),
        (functools.partial(task_functions.totals, source=""), "which is not a function made with 'def'"),
    ],
)
def test_a_function_that_does_not_stand_by_itself_is_refused_when_the_dag_is_parsed(
    function: Callable[..., Any], named: str
) -> None:
    """One error that names the thing and the remedy."""
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        spark_recovery_task(function)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "The argument source is a datetime"),
        ({"a": [1, b"x"]}, "The argument source['a'][1] is a bytes"),
        ({1: 2}, "The argument source has the key 1"),
        ({1, 2}, "The argument source is a set"),
    ],
)
def test_an_argument_that_is_not_plain_is_refused(value: Any, named: str) -> None:
    """Named down to the element."""
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        arguments_of(task_functions.totals, (), {"source": value}, {})


def test_what_the_function_asks_of_airflows_context_is_given_if_it_is_plain() -> None:
    """``ds`` goes with it, ``ti`` does not."""
    given = arguments_of(task_functions.totals, ("s",), {}, {"ds": "2026-01-01", "source": "not this"})
    assert given == {"source": "s", "buckets": 6, "ds": "2026-01-01"}

    def asks(spark: Any, ti: Any = None) -> None: ...

    with pytest.raises(ConfigurationError, match="The argument ti is a SimpleNamespace"):
        arguments_of(asks, (), {}, {"ti": SimpleNamespace()})
    with pytest.raises(ConfigurationError, match="'totals' cannot be called as the DAG says: missing"):
        arguments_of(task_functions.totals, (), {}, {})


# -- in a DAG ---------------------------------------------------------------------------------------------------------


def test_airflow_finds_the_decorator_and_a_dag_uses_it() -> None:
    """As ``@task.spark_recovery``; ``spark`` is no argument of the DAG's; templates and mapping work."""
    assert "spark_recovery" in dict(ProvidersManagerTaskRuntime().taskflow_decorators)
    with DAG("d") as dag:

        @task.spark_recovery(conn_id="spark_default", retries=2, resume="never")
        def job(spark: Any, day: str) -> dict[str, Any]:
            return {"rows": spark.range(3).count(), "day": day}

        one = job("{{ ds }}")  # type: ignore[call-arg, misc]
        job.override(task_id="many").expand(day=["a", "b"])
        with pytest.raises(TypeError):
            job()  # type: ignore[call-arg, misc]
    operator = one.operator  # type: ignore[attr-defined]
    assert isinstance(operator, SparkRecoveryDecoratedOperator)
    assert (operator.retries, operator.resume, operator.multiple_outputs) == (2, "never", True)
    assert {"op_args", "op_kwargs", "conf", "event_store", "resume"} <= set(operator.template_fields)
    assert "application" not in operator.template_fields
    assert dag.task_dict["many"].is_mapped
    unmapped = dag.task_dict["many"].unmap({"op_kwargs": {"day": "b"}})
    assert isinstance(unmapped, SparkRecoveryDecoratedOperator)
    assert (unmapped.op_kwargs, unmapped.retries, unmapped.resume) == ({"day": "b"}, 2, "never")
    operator.render_template_fields(cast("Any", {"ds": "2026-02-02"}))
    assert [*operator.op_args] == ["2026-02-02"]


def test_the_function_is_the_application() -> None:
    """Another one, or arguments for a command line, are refused."""
    with pytest.raises(ConfigurationError, match="was given application, application_args"):
        SparkRecoveryDecoratedOperator(
            task_id="t", python_callable=closing_over, application="x.py", application_args=[]
        )


# -- on a driver elsewhere


def test_in_cluster_mode_the_script_goes_along_and_only_this_user_can_read_it(
    submits: Any, connect: Connect, tmp_path: Path
) -> None:
    """As a file of the job, with its arguments inside; the command line names it and shows none of them."""
    line = tmp_path / "line"
    keep = f"""
import json, os, stat, sys
at = sys.argv.index("--files") + 1
[path] = [path for path in sys.argv[at].split(",") if path.endswith("totals.py")]
modes = [oct(stat.S_IMODE(os.stat(place).st_mode)) for place in (path, os.path.dirname(path))]
json.dump([sys.argv, open(path).read(), modes], open({str(line)!r}, "w"))
"""
    submits(keep + DRIVER.format(end=RETURNED + FINISHED))
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})
    operator = SparkRecoveryDecoratedOperator(
        task_id="task", python_callable=task_functions.totals, op_args=["s3a://sesame"], durable=False
    )
    pushed = {}
    instance = SimpleNamespace(**TASK_INSTANCE, stats_tags={}, xcom_push=lambda key, value: pushed.update({key: value}))
    assert operator.execute(cast("Any", {"ti": instance})) == [1, None]
    assert pushed[REPORT_KEY]["state"] == "FINISHED"

    command, script, modes = json.loads(line.read_text())
    assert command[-1] == "totals.py"
    assert "sesame" not in json.dumps(command)
    assert "sesame" in script
    assert modes == ["0o600", "0o700"]
    assert not Path(operator.application).exists(), "nothing is left of it"


@pytest.mark.integration
@pytest.mark.process
@pytest.mark.walk
def test_a_deferred_function_keeps_its_script_until_the_end(
    submits: Any, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver reads it while no worker waits; the value comes back with the task, and nothing is left behind."""
    gate = tmp_path / "gate"
    submits("import os, time\n" + DRIVER.format(end=WAITING.format(gate=str(gate), end=RETURNED + FINISHED)))
    connect("spark_default", "spark", host="local[2]")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scripts: list[Path] = []

    def between(_: object) -> None:
        scripts.extend(tmp_path.rglob("totals.py"))
        gate.touch()

    def make() -> SparkRecoveryDecoratedOperator:
        return SparkRecoveryDecoratedOperator(
            task_id="task", python_callable=task_functions.totals, op_args=["x"], deferrable=True
        )

    instance = SimpleNamespace(**TASK_INSTANCE, stats_tags={}, xcom_push=lambda key, value: None)
    returned, times = run_try(make, {"ti": instance, "ds": "2026-01-01"}, between)
    assert (returned, times) == ([1, None], 1)
    assert len(scripts) == 1
    assert not scripts[0].exists()


# -- on real drivers --------------------------------------------------------------------------------------------------


@pytest.fixture
def function_tries(tries: Tries) -> Tries:
    arguments = {"source": str(tries.folder / "orders.parquet")}
    return Tries(tries.folder, {"conf": tries.task["conf"], "function": "totals", "arguments": arguments})


def expected(tries: Tries) -> dict[str, Any]:
    table = pq.read_table(tries.folder / "orders.parquet")
    amount = 2 * sum(table["amount"].to_pylist())
    return {
        "customers": len(set(table["customer"].to_pylist())),
        "amount": amount,
        "day": "2026-01-01",
        "text": 'it\'s "quoted"\n',
    }


def report_of(log: str) -> Any:
    (line,) = [line for line in log.splitlines() if line.startswith(f"XCom {REPORT_KEY}: ")]
    return json.loads(line.partition(": ")[2])


@pytest.mark.integration
@pytest.mark.process
def test_a_killed_function_is_resumed_and_its_value_goes_to_xcom(function_tries: Tries) -> None:
    """Only the missing partitions are computed; then a driver that finished unseen gives its value to the next try."""
    code, log = function_tries.run(env_vars={"SPARK_RECOVERY_FAULT": "after-partition-event@3"})
    assert code != 0
    assert "Kept for the next try" in log

    code, log = function_tries.run(env_vars={"SPARK_RECOVERY_FAULT": "after-job-finished"})
    assert code != 0, log
    code, log = function_tries.run()
    assert code == 0, log
    assert "succeeded already" in log
    assert xcom(log) == expected(function_tries)
    report = report_of(log)
    assert report["partitions_reused"] >= 3
    assert report["partitions_reused"] + report["partitions_computed"] == 6
    assert "returned" not in report
    assert "orders.parquet" not in re.sub(r"\{.*\}", "", log.partition("Spark-Submit cmd")[2].partition("\n")[0])


@pytest.mark.integration
@pytest.mark.process
@pytest.mark.walk
def test_a_function_runs_without_recovery_too(function_tries: Tries) -> None:
    """With enabled=false nothing is recorded; the value comes all the same from a driver on this machine."""
    code, log = function_tries.run(recovery_options={"enabled": False})
    assert code == 0, log
    assert xcom(log) == expected(function_tries)
    assert not (function_tries.folder / "store").exists()


@pytest.mark.walk
@pytest.mark.integration
@pytest.mark.process
def test_a_value_that_is_not_plain_fails_the_task_without_retries(function_tries: Tries) -> None:
    """It says what was returned and what to do."""
    code, log = function_tries.run(function="unplain", arguments={})
    assert code != 0
    assert "AirflowFailException" in log
    assert "The task function 'unplain' returned a SparkSession, which cannot go to XCom" in log


@pytest.mark.integration
@pytest.mark.process
def test_a_function_skips_its_task(function_tries: Tries) -> None:
    """With the message that it has given, as a function that runs on the worker does."""
    _, log = function_tries.run(function="nothing_new", arguments={})
    assert log.splitlines()[-1].endswith("AirflowSkipException: nothing new: today")


def test_a_value_that_nobody_kept_is_not_none(tries: Tries, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A driver that succeeded and left no value fails the task: downstream tasks would work with nothing."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    operator = SparkRecoveryDecoratedOperator(
        task_id="task", python_callable=task_functions.totals, op_kwargs={"source": "s"}
    )
    instance = SimpleNamespace(
        dag_id="d", run_id="r", task_id="t", map_index=-1, stats_tags={}, xcom_push=lambda **_: None
    )
    with pytest.raises(AirflowException, match="what its function returned is not in the event store"):
        operator.execute(cast("Any", {"ti": instance}))
    operator.op_kwargs = {"source": object()}
    with pytest.raises(AirflowFailException, match="The argument source is a object"):
        operator.execute(cast("Any", {"ti": instance}))
