"""Where PySpark is patched: in one module, each method once, and only while a script runs."""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

import airflow_provider
from airflow_provider.core import overhead as overhead_module
from airflow_provider.core.overhead import Overhead
from airflow_provider.spark import interception
from airflow_provider.spark.calls import Call, Kind, Proceed
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.runner import _counted
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import job_group
from tests.support.driver import DriverHarness

PACKAGE = Path(airflow_provider.__file__).parent
SCRIPT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
sys.path.insert(0, sys.argv[2])
from tests.spark.test_interception import strangers
spark = SparkSession.builder.getOrCreate()
with_spark, loaded = strangers(), "pyspark.ml" in sys.modules
import pyspark.ml, pyspark.mllib.classification
Path(sys.argv[1]).write_text(json.dumps([with_spark, loaded, strangers()]))
"""
WRITES = re.compile(
    r"_jwriter?\.(save|start|toTable|append|create|replace|overwrite|merge|insert|parquet|json|csv|orc|text|xml|jdbc)\w*\("
    r"|_jcatalog\.(create|drop(?!Temp|GlobalTemp)|truncate|recover|analyze)\w*\(|handleOverwrite\(|PythonRDD\.save"
    r"|\.saveAs(?:Text|Object)File\(path|\.save\(sc\._jsc"
)
"""What hands something to a writer of the JVM."""
PASSED = {
    "pyspark.ml.util.JavaMLWriter.overwrite": "says what save() is to do",
    "pyspark.streaming.dstream.DStream.saveAsTextFiles": "calls the RDD's for each batch",
}


def members() -> Iterator[tuple[str, Any]]:
    """Everything that the modules of PySpark hold which are loaded, and what their classes hold."""
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] != "pyspark" or module is None:
            continue
        for member, value in list(vars(module).items()):
            yield f"{name}.{member}", value
            if inspect.isclass(value) and value.__module__ == name:
                for attribute, held in list(vars(value).items()):
                    yield f"{name}.{member}.{attribute}", held


def function_of(value: Any) -> Any:
    """The function that a method or a property is; ``None`` for anything else."""
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return value if inspect.isfunction(value) else None


def strangers() -> dict[str, str]:
    """The functions in PySpark whose code is this provider's: where they stand → the module of their code."""
    found = {}
    for name, value in members():
        function = function_of(value)
        code = getattr(function, "__code__", None)
        if code is not None and Path(code.co_filename).is_relative_to(PACKAGE):
            found[name] = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            within = getattr(function, "__wrapped__", None)
            if within is not None and Path(within.__code__.co_filename).is_relative_to(PACKAGE):
                found[f"{name} (twice)"] = found[name]
    return found


def everything(call: Call, proceed: Proceed) -> Any:
    return proceed()


@pytest.mark.integration
@pytest.mark.process
def test_a_driver_patches_in_one_module_and_each_method_once(tmp_path: Path) -> None:
    """All that a script finds in PySpark that is not PySpark's is of ``interception``."""
    script, found = tmp_path / "script.py", tmp_path / "found.json"
    script.write_text(SCRIPT)
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store")
    run = driver.run(str(script), str(found), str(PACKAGE.parent), options={"recovery-points": "auto", "sinks": "once"})
    assert run.code == 0, run.log
    with_spark, loaded, patched = json.loads(found.read_text())
    assert not loaded, "MLlib takes seconds to import"
    assert with_spark.items() < patched.items()
    assert "pyspark.mllib.classification.SVMModel.save" in patched
    assert set(patched.values()) == {"spark/interception.py"}
    assert not [name for name in patched if name.endswith("(twice)")]
    for name in ("sql", "__init__", "createDataFrame"):
        assert f"pyspark.sql.session.SparkSession.{name}" in patched
    assert "pyspark.sql.classic.dataframe.DataFrame.rdd" in patched
    assert "pyspark.sql.classic.dataframe.DataFrame.collect" in patched, "a query whose job fails is restarted"


def test_what_recovery_takes_of_the_scripts_time_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its stages take, and not what Spark does; methods that have no stage stay as they are."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: 0.0)
    monkeypatch.setattr(overhead_module, "time", clock)

    def passing(seconds: float) -> None:
        now[0] += seconds

    def stage(_: Call, proceed: Proceed) -> Any:
        passing(2)
        proceed()
        passing(3)

    overhead = Overhead()
    parts = list(_counted(overhead, [{Kind.WRITE: stage}, {Kind.COUNT: everything}]))
    assert set().union(*parts) == {Kind.WRITE, Kind.COUNT}
    stages = [part[Kind.WRITE] for part in parts if Kind.WRITE in part]
    interception._pass(stages, Call(Kind.WRITE, None, "parquet"), lambda: passing(100))
    assert overhead.state(1)["spent"]["waiting"][1] == 5


def test_each_method_of_pyspark_that_writes_is_in_the_table() -> None:
    """Looked for in the sources of PySpark: what calls a writer of the JVM, or one of RDDs and of MLlib's models."""
    folder = Path(pyspark.__file__).parent
    table = {f"{row.owner}.{name}" for row in interception._TABLE for name in row.names}
    found = set()
    for file in sorted(folder.rglob("*.py")):
        place = file.relative_to(folder.parent).with_suffix("")
        if {"connect", "tests", "examples", "pipelines"}.isdisjoint(place.parts):
            lines = file.read_text().splitlines()
            tree = ast.parse("\n".join(lines) if WRITES.search("\n".join(lines)) else "")
            for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
                for method in owner.body:
                    if isinstance(method, ast.FunctionDef) and WRITES.search(code_of(lines, method)):
                        found.add((".".join(place.parts), f"{owner.name}.{method.name}"))
    assert len(found) > 40
    assert {f"{module}.{method}" for module, method in found if method not in table} == set(PASSED)


def code_of(lines: list[str], method: ast.FunctionDef) -> str:
    """The source of a method, without its docstring."""
    first = method.body[1 if ast.get_docstring(method) is not None and len(method.body) > 1 else 0]
    return "\n".join(lines[first.lineno - 1 : method.end_lineno])


def test_no_other_module_of_the_package_sets_anything_of_pyspark() -> None:
    """No assignment and no ``setattr`` reaches what was imported from PySpark; classes are patched by one module."""
    for found in pkgutil.walk_packages([str(PACKAGE)], "airflow_provider."):
        file = PACKAGE.parent / Path(*found.name.split("."))
        file = file / "__init__.py" if found.ispkg else file.with_suffix(".py")
        if file != Path(interception.__file__):
            assert not list(sets_of_pyspark(ast.parse(file.read_text()))), found.name


def sets_of_pyspark(tree: ast.AST) -> Iterator[str]:
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyspark":
            imported |= {alias.asname or alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            imported |= {alias.asname or "pyspark" for alias in node.names if alias.name.split(".")[0] == "pyspark"}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [target.value for target in node.targets if isinstance(target, ast.Attribute)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            targets = node.args[:1]
        for target in targets:
            root = target
            while isinstance(root, (ast.Attribute, ast.Call)):
                root = root.value if isinstance(root, ast.Attribute) else root.func
            if isinstance(root, ast.Name) and root.id in imported:
                yield ast.unparse(node)


@pytest.mark.parametrize(
    "text",
    [
        "from pyspark.sql import SparkSession\nSparkSession.sql = None",
        "from pyspark.sql import DataFrame as Frame\nsetattr(Frame, 'count', None)",
        "import pyspark.sql\npyspark.sql.DataFrame.count = None",
    ],
)
def test_an_assignment_to_pyspark_is_found(text: str) -> None:
    """The walk sees the ways in which a class or a module is patched."""
    assert list(sets_of_pyspark(ast.parse(text)))


def test_what_is_patched_is_taken_back() -> None:
    """Every member of PySpark is the same object as before, inherited ones are inherited again."""
    import pyspark.sql.classic.dataframe
    import pyspark.sql.merge  # noqa: F401 - it is looked at

    before = dict(members())
    with intercepted(dict.fromkeys(Kind, everything)):
        assert len(strangers()) > 50
    after = dict(members())
    assert after.keys() == before.keys()
    assert [name for name, value in after.items() if value is not before[name]] == []


def test_a_call_passes_the_stages_in_their_order(spark: Any) -> None:
    """The first part's stage is the outermost; arguments are found by position and by name."""
    seen = list[Any]()

    def outer(call: Call, proceed: Proceed) -> Any:
        seen.append(("outer", call.name, call.argument(0, "sqlQuery"), call.text_alone))
        result = proceed()
        seen.append("left")
        return result

    def inner(call: Call, proceed: Proceed) -> Any:
        assert call.owner is spark
        seen.append("inner")
        return proceed()

    with intercepted({Kind.SQL: outer}, {Kind.SQL: inner}):
        assert spark.sql(sqlQuery="SELECT :n AS n", args={"n": 1}).first() == (1,)
    assert seen == [("outer", "sql", "SELECT :n AS n", False), "inner", "left"]


@pytest.mark.parametrize("recovering", [False, True])
def test_the_spark_ui_names_the_line_of_the_script(spark: Any, attempts: Attempts, recovering: bool) -> None:
    """Spark describes a job, or a query, by the method that the script has called, and where."""
    group = f"described, {recovering}"
    with attempts.script() if recovering else nullcontext(), job_group(spark, group):
        first = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        spark.range(3).collect()
        list(spark.range(3, numPartitions=1).toLocalIterator())
        spark.sparkContext.parallelize([1]).foreach(lambda _: None)
        spark.range(3).rdd.count()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(group))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    calls = ("collect", "toLocalIterator", "foreach", "count")
    assert [stage.name for stage in stages if stage is not None] == [
        f"{name} at {__file__}:{first + line}" for line, name in enumerate(calls)
    ]


def test_what_a_writer_calls_on_itself_passes_no_stage(spark: Any, tmp_path: Path) -> None:
    """``parquet(path, mode=…)`` is one call of the script's, not three."""
    calls = []

    def note(call: Call, proceed: Proceed) -> Any:
        calls.append(call.name)
        return proceed()

    with intercepted({Kind.SETTING: note, Kind.WRITE: note}):
        spark.range(1).write.option("compression", "none").parquet(str(tmp_path / "out"), mode="overwrite")
    assert calls == ["option", "parquet"]
