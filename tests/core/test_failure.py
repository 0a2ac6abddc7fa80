"""Which failures no restart can fix, from the chain of their causes."""

from __future__ import annotations

import pytest

from airflow_provider.core.causes import causes, one_line, unreadable_partitions
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.failure import Cause, UnrecoverableError, file_gone, unrecoverable

KEY = "partitions/v-1/l/00001.e1.t1.r1.cabcdef01.ms1.parquet"


class MyError(UnrecoverableError):
    pass


class PythonException(Exception):
    pass


WORKER = """
An exception was thrown from the Python worker.
Traceback (most recent call last):
  File "job.py", line 3, in f
    return x
           ^
{line}
"""


def raised(error: Exception, cause: Exception | None = None, context: Exception | None = None) -> Exception:
    error.__cause__, error.__context__ = cause, context
    return error


@pytest.mark.parametrize(
    "error",
    [
        MyError("stop"),
        SyntaxError("bad"),
        IndentationError("bad"),
        NameError("x"),
        ConfigurationError("x"),
        raised(type("AirflowFailException", (Exception,), {})("stop")),
        raised(RuntimeError("wrapped"), cause=raised(ValueError("again"), cause=UnrecoverableError("stop"))),
        PythonException(WORKER.format(line="airflow_provider.core.failure.UnrecoverableError: stop")),
        PythonException(WORKER.format(line="NameError: name 'x' is not defined")),
    ],
    ids=lambda error: f"{type(error).__name__}-{str(error)[:10]!r}",
)
def test_unrecoverable(error: Exception) -> None:
    """Found anywhere in the chain, in subclasses, and in what a Python worker raised."""
    assert unrecoverable(causes(error)) is not None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        ZeroDivisionError(),
        SystemExit(1),
        ModuleNotFoundError("numpy"),
        raised(RuntimeError("the fallback failed"), context=NameError("x")),
        PythonException(WORKER.format(line="ValueError: NameError: no")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_be_chance(error: BaseException) -> None:
    """Data, machines and what is only raised while another error is handled: a restart may help."""
    assert unrecoverable(causes(error)) is None


@pytest.mark.parametrize(
    ("condition", "unrecoverable_here"),
    [
        ("UNRESOLVED_COLUMN.WITH_SUGGESTION", True),
        ("DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", True),
        ("TABLE_OR_VIEW_NOT_FOUND", False),
        ("PATH_NOT_FOUND", False),
        ("UNABLE_TO_INFER_SCHEMA", False),
        ("", False),
    ],
)
def test_a_plan_that_does_not_resolve(condition: str, unrecoverable_here: bool) -> None:
    """A wrong column stays wrong; a table or a path may be there at the next try."""
    assert (unrecoverable([Cause("AnalysisException", condition)]) is not None) is unrecoverable_here


def test_a_chain_that_bites_its_tail_ends() -> None:
    """Python allows circles of causes."""
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert [cause.message for cause in causes(one)] == ["1", "2"]


def test_causes_of_the_jvm() -> None:
    """Each ``Caused by`` is a link."""
    error = RuntimeError("An error occurred.\nCaused by: java.io.IOException: gone\nCaused by: a.b.Deep\n\tat x")
    assert [cause.type for cause in causes(error)] == ["RuntimeError", "IOException", "Deep"]


def test_one_line_says_the_last_cause_in_the_jvm() -> None:
    """Once: many errors of Spark have it in their first line."""
    trace = "JVM stacktrace:\nat a.B\nCaused by: a.FSError: in: the disk\nCaused by: java.io.IOException: No space left"
    assert one_line(ValueError(f"Task failed\n\n{trace}")) == "ValueError: Task failed: No space left"
    assert one_line(ValueError(f"Lost task: No space left\n{trace}")) == "ValueError: Lost task: No space left"


def test_one_line_says_what_the_worker_raised() -> None:
    """And not the many lines that Spark wraps it in."""
    assert one_line(PythonException(WORKER.format(line="ValueError: no such carrier"))) == "ValueError: no such carrier"
    assert one_line(ValueError("first\nsecond")) == "ValueError: first"


def test_one_line_says_what_the_jvm_failed_with() -> None:
    """And not which call of Py4J's it was."""
    text = "An error occurred while calling o44.shuffleDependency.\n: java.lang.{error}\n\tat a.b.C(C.java:1)"
    assert one_line(RuntimeError(text.format(error="NullPointerException: it is null"))) == (
        "NullPointerException: it is null"
    )
    assert one_line(RuntimeError(text.format(error="StackOverflowError"))) == "StackOverflowError"
    caused = "SparkException: Task failed\nCaused by: a.FSError: in: x\nCaused by: b.IOException: No space"
    assert one_line(RuntimeError(text.format(error=caused))) == "SparkException: Task failed: No space"


def test_unreadable_partitions_are_named_only_where_the_object_is_to_blame() -> None:
    """A store that does not answer says nothing about what it holds."""
    assert unreadable_partitions(RuntimeError(f"[FAILED_READ_FILE.NO_HINT] file:///x/{KEY}, again {KEY}")) == [KEY]
    assert unreadable_partitions(RuntimeError(f"errors.CorruptObject: {KEY} has another size")) == [KEY]
    assert unreadable_partitions(RuntimeError(f"errors.StoreUnavailable: {KEY}")) == []


class Py4JJavaError(Exception):
    pass


_JOB = "An error occurred while calling o9.x.\n: org.apache.spark.SparkException: {first}\n\tat x.y(Z.scala)\n{cause}"
_ABORTED = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0: "
_TIP = "It is possible the underlying files have been updated."


@pytest.mark.parametrize(
    ("first", "cause", "gone"),
    [
        (  # Spark 3.5
            _ABORTED + "org.apache.spark.SparkFileNotFoundException: File file:/a.parquet does not exist",
            f"Caused by: org.apache.spark.SparkFileNotFoundException: File file:/a.parquet does not exist\n{_TIP}",
            True,
        ),
        (  # Spark 4
            f"{_ABORTED}org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while "
            f"reading file file:///a.parquet. File does not exist. {_TIP} SQLSTATE: KD001",
            "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error",
            True,
        ),
        ("Job aborted.", "Caused by: java.io.FileNotFoundException: File file:/a.parquet does not exist", True),
        (
            f"{_ABORTED}org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error",
            "Caused by: java.lang.RuntimeException: FileNotFoundException is what this is not",
            False,
        ),
        ("Job aborted.", "Caused by: java.lang.IllegalStateException: x", False),
    ],
)
def test_a_file_that_is_gone(first: str, cause: str, gone: bool) -> None:
    """In the words of each version of Spark."""
    assert file_gone(causes(Py4JJavaError(_JOB.format(first=first, cause=cause)))) is gone
