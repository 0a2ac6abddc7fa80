"""What keeps the identity of a Python function, and what changes it. No JVM is needed: PySpark's pickles do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import IntegerType, LongType

from airflow_provider.spark.identity.functions import FunctionIdentity, FunctionReader
from tests.spark.function_cases import DIFFERENT, SAME, command, identity, shipped


@pytest.mark.parametrize("name", SAME)
def test_what_changes_nothing_keeps_the_identity(name: str) -> None:
    """Two scripts whose function does the same give it one digest."""
    first, second = SAME[name]
    assert identity(first).digest == identity(second).digest


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_changes_behaviour_changes_the_identity(name: str) -> None:
    """Two scripts whose function can do different things never give it one digest, and each always gives its own."""
    first, second = DIFFERENT[name]
    assert identity(first).digest == identity(first).digest
    assert identity(second).digest == identity(second).digest
    assert identity(first).digest != identity(second).digest


def test_the_return_type_counts() -> None:
    """The type that a function is declared to return is part of what it is."""
    source = "f = lambda x: x"
    reader = FunctionReader({})
    assert reader.read(command(source, LongType())).digest != reader.read(command(source, IntegerType())).digest


# -- what has no identity --------------------------------------------------------------------------------------------


def test_a_module_that_cannot_be_found_leaves_no_identity() -> None:
    """Where the driver cannot see what executors will import, the function is opaque and the module is named."""
    found = FunctionReader({}).read(command("def f(x):\n import only_on_executors\n return only_on_executors"))
    assert "only_on_executors" in found.opaque[0]


def test_what_is_no_pickle_leaves_no_identity() -> None:
    """Bytes that cannot be read are opaque, not an error."""
    assert "cannot be read" in FunctionReader({}).read(b"no pickle").opaque[0]


def test_accumulators_leave_no_identity() -> None:
    """A function that adds to an accumulator has an effect besides its result, so it is never taken for done."""
    from pyspark.accumulators import INT_ACCUMULATOR_PARAM, Accumulator

    counter = Accumulator(10**6, 0, INT_ACCUMULATOR_PARAM)

    def f(x: int) -> int:
        counter.add(1)
        return x

    found = FunctionReader({}).read(shipped(f))
    assert found.opaque == ("it uses an accumulator",)


def test_what_is_nested_too_deeply_leaves_no_identity() -> None:
    """A value nested so deeply that it cannot be walked is opaque, not an error."""
    pickled = command("K = []\nfor _ in range(300): K = [K]\nf = lambda x: K")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)
    try:
        found = FunctionReader({}).read(pickled)
    finally:
        sys.setrecursionlimit(limit)
    assert found.opaque == ("it is nested too deeply",)


def test_reading_runs_nothing() -> None:
    """Neither constructors, nor state setters, nor reducers of the user's run, and live classes stay as they are."""
    script: dict[str, Any] = {"__name__": "__main__", "ran": []}
    exec(
        "class C:\n"
        " def __setstate__(self, state): ran.append(state)\n"
        " def __reduce__(self): return (make, (1,), {'a': 1})\n"
        "def make(x): ran.append(x); return C()\n"
        "c = C()\n"
        "method = C.__setstate__\n"
        "f = lambda x: c\n",
        script,
    )
    pickled = shipped(script["f"])
    assert FunctionReader({}).read(pickled).opaque == ()
    assert script["ran"] == []
    assert script["C"].__setstate__ is script["method"]
    pickle.loads(pickled)
    assert script["ran"] or script["C"].__setstate__ is not script["method"]  # as unpickling would have done


# -- broadcast variables -------------------------------------------------------------------------------------------


class _Variable:
    """A broadcast variable on the driver, as far as it is looked at; the real ones are in test_functions_spark.py."""

    def __init__(self, variable_id: int, value: Any) -> None:
        self.id = variable_id
        self.value = value

    def __reduce__(self) -> Any:
        from pyspark.core.broadcast import _from_id

        return _from_id, (self.id,)


def _broadcast(value: Any, variable_id: int = 0) -> FunctionIdentity:
    variable = _Variable(variable_id, value)
    return FunctionReader({variable_id: variable}).read(shipped(lambda x: variable.value[x]))


def test_broadcast_variables_count_by_their_value() -> None:
    """The value of a broadcast variable counts, its number does not."""
    assert _broadcast([1, 2]).opaque == ()
    assert _broadcast([1, 2]) == _broadcast([1, 2], variable_id=7)
    assert _broadcast([1, 2]).digest != _broadcast([1, 3]).digest
    assert _broadcast({"a", "b", "c"}).digest == _broadcast({"c", "b", "a"}).digest


def test_a_broadcast_variable_that_was_not_seen_leaves_no_identity() -> None:
    """A variable that was made before recovery was on is not guessed at."""
    variable = _Variable(3, 0)
    assert "broadcast variable" in FunctionReader({}).read(shipped(lambda _: variable.value)).opaque[0]


def test_a_command_in_a_broadcast_variable_is_the_same_command() -> None:
    """Large commands, which PySpark broadcasts, have the identity that they would have otherwise."""
    pickled = command("K = 'x' * 2_000_000\nf = lambda x: K")
    variable = _Variable(5, pickled)
    large = FunctionReader({5: variable}).read(CloudPickleSerializer().dumps(variable))
    assert large == FunctionReader({}).read(pickled)


# -- from process to process -----------------------------------------------------------------------------------------

_PROBE = """
from tests.spark.function_cases import DIFFERENT, SAME, identity
for name, pair in {**SAME, **DIFFERENT}.items():
    print(name, *(identity(source).digest for source in pair))
"""


@pytest.mark.integration
def test_identities_are_the_same_in_every_process() -> None:
    """Whatever seed Python hashes texts with, every function of these tests keeps its digest."""

    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, check=True, capture_output=True, text=True
        ).stdout

    first = run("1")
    assert len(first.splitlines()) == len(SAME) + len(DIFFERENT)
    assert first == run("2")
