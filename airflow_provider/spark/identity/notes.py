"""Note what a plan does not tell, while the script makes it.

Some of what decides a DataFrame's rows is lost on the way into Spark: rows given to ``createDataFrame``, values of
broadcast variables, and whether a seed or a number of slices was chosen by the script or drawn for it. It is noted
where it is still known: in the calls of PySpark that bring it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.digest import digest
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.identity.functions.reader import without_hold
from airflow_provider.spark.jvm.queries import (
    column_of_range,
    is_classic,
    local_rows,
    number_of_broadcast,
    seed_of_column,
    seed_of_sample,
)

if TYPE_CHECKING:
    from airflow_provider.spark.identity.known import Draws, KnownOfApplication

log = logging.getLogger(__name__)

_BEFORE_SEED = {"rand": 0, "randn": 0, "random": 0, "uuid": 0, "shuffle": 1, "randstr": 1, "uniform": 2}
"""PySpark's functions that take a seed, with the number of arguments before it."""


def notes(application: Callable[[], KnownOfApplication], draws: Draws) -> Stages:
    """Note what the script's DataFrames do not tell; PySpark and Spark make and draw everything as they do anyway.

    :param application: returns what is known of the application that the script has now
    :param draws: of the whole script
    """

    def local_data(call: Call, proceed: Proceed) -> Any:
        try:
            content = content_digest(call.argument(0, "data"))
        except Exception as error:  # noqa: BLE001 - objects of the script's may do anything when they are looked at
            log.debug("Local data cannot be told apart: %s", one_line(error))
            content = ""
        df = proceed()
        if content and is_classic(df):
            rows = local_rows(df)
            if rows is not None:
                application().local_data[rows] = digest(content, df.schema.json())
        return df

    def slices(call: Call, proceed: Proceed) -> Any:
        """Note a range whose number of slices the script leaves open: explicit recovery points pin how it is cut."""
        df = proceed()
        if call.argument(3, "numPartitions") is None and is_classic(df):
            application().ranges.add(column_of_range(df))
        return df

    def draw(call: Call, proceed: Proceed) -> Any:
        column = proceed()
        if call.argument(_BEFORE_SEED[call.name], "seed") is None:
            seed = seed_of_column(column)
            if seed is not None:
                draws.note(seed)
        return column

    def sample(call: Call, proceed: Proceed) -> Any:
        """``sample([withReplacement,] fraction[, seed])``; PySpark 4 drops the seed of ``sample(0.5, seed=3)``."""
        sampled = proceed()
        before_seed = 1 if call.args and isinstance(call.args[0], float) else 2
        _note_sample(sampled, draws, given=call.argument(before_seed, "seed"))
        return sampled

    def split(call: Call, proceed: Proceed) -> Any:
        parts = proceed()
        if call.argument(1, "seed") is None:
            for part in parts:
                _note_sample(part, draws)
        return parts

    return {
        Kind.LOCAL_DATA: local_data,
        Kind.BROADCAST: broadcasts(lambda: application().broadcasts),
        Kind.RANGE: slices,
        Kind.DRAW: draw,
        Kind.SAMPLE: sample,
        Kind.SPLIT: split,
    }


def broadcasts(known: Callable[[], dict[int, Any]]) -> Callable[[Call, Proceed], Any]:
    """Note in *known()* (id → where its value is) what is broadcast: a command names it only by its id.

    PySpark broadcasts the commands of large functions by the same method. The variables themselves are not held; their
    values lie in files of PySpark's until the application ends or they are destroyed, and are read when asked for.
    """

    def broadcast(_: Call, proceed: Proceed) -> Any:
        variable = proceed()
        known()[number_of_broadcast(variable)] = without_hold(variable)
        return variable

    return broadcast


def _note_sample(df: Any, draws: Draws, *, given: Any = None) -> None:
    """Note the seed of a sample, unless it is the one that the script has given."""
    seed = seed_of_sample(df)
    if seed is not None and (given is None or seed != int(given)):
        draws.note(seed)


def content_digest(data: Any) -> str:
    """Return a digest of plain local data, or empty text for anything else.

    :raises Exception: whatever an object of the script's raises, or Arrow where it has no type for a column
    """
    module = type(data).__module__.split(".")[0]
    if isinstance(data, (list, tuple)):
        return _rows(data)
    if module == "pandas" and type(data).__name__ == "DataFrame":
        import pyarrow as pa

        return _arrow(pa.Table.from_pandas(data)) + _objects(data)
    if module == "pyarrow" and type(data).__name__ == "Table":
        return _arrow(data)
    return ""


def _objects(data: Any) -> str:
    """Return a digest of what Arrow makes equal of a pandas DataFrame's objects, and PySpark without Arrow does not:
    NaN and ``None``, 1 and 1.0. Empty text if it has no columns of objects.
    """
    columns = [data.iloc[:, at] for at in range(data.shape[1]) if data.dtypes.iloc[at].kind == "O"]
    if not columns:
        return ""
    containers = (list, tuple, dict)
    shown = (
        repr(value) if _is_plain(value, containers) else type(value).__name__ for column in columns for value in column
    )
    return "-" + hashlib.sha256("\0".join(shown).encode("utf-8", "surrogatepass")).hexdigest()


_PLAIN = {int, float, str, bool, bytes, bytearray, NoneType, Decimal, date, datetime, timedelta}


def _rows(rows: list[Any] | tuple[Any, ...]) -> str:
    from pyspark.sql import Row

    sha, containers = hashlib.sha256(), (list, tuple, dict, Row)
    for row in rows:
        if not _is_plain(row, containers):
            return ""
        sha.update(repr((type(row).__name__, row)).encode("utf-8", "surrogatepass"))
        sha.update(b"\0")
    if any(_has_local_time(row) for row in rows):  # a time of day is one of this machine's time zone
        sha.update(repr((time.tzname, time.timezone, time.altzone)).encode())
    return sha.hexdigest()


def _has_local_time(value: Any) -> bool:
    if type(value) is datetime:
        return value.tzinfo is None
    if type(value) is dict:
        return any(map(_has_local_time, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_local_time, value))


def _is_plain(value: Any, containers: tuple[type, ...]) -> bool:
    """Whether ``repr`` shows all of *value*: built from plain types only, not from classes that are named like them."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind not in containers:
        return False
    return all(_is_plain(item, containers) for item in (value.items() if kind is dict else value))


def _arrow(table: Any) -> str:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return hashlib.sha256(sink.getvalue()).hexdigest()
