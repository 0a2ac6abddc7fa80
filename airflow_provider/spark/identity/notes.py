"""Note, while the script builds its DataFrames, what their plans will not show.

Some of what decides a DataFrame's rows is lost on the way into Spark: rows given to ``createDataFrame``, values of
broadcast variables, and whether the script chose a seed or a number of slices itself. It is noted in the PySpark calls
where it is still known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.identity.functions.reader import without_hold
from airflow_provider.spark.identity.local_rows import described
from airflow_provider.spark.jvm.queries import (
    column_of_range,
    is_classic,
    local_rows,
    number_of_broadcast,
    seed_of_column,
    seed_of_sample,
)

if TYPE_CHECKING:
    from airflow_provider.spark.identity.known import Draws, KnownOfApplication, RunMarks

_BEFORE_SEED = {"rand": 0, "randn": 0, "random": 0, "uuid": 0, "shuffle": 1, "randstr": 1, "uniform": 2}
"""PySpark's functions that take a seed, with the number of arguments before it."""


def notes(application: Callable[[], KnownOfApplication], draws: Draws, marks: RunMarks) -> Stages:
    """Return the stages that take these notes; PySpark and Spark make and draw everything as usual.

    :param application: returns the state of the script's current application
    :param draws: of the whole script
    :param marks: of this attempt
    """

    def local_data(call: Call, proceed: Proceed) -> Any:
        content = described(call.argument(0, "data"), marks.of(call.owner))
        df = proceed()
        if content is not None and is_classic(df):
            rows = local_rows(df)
            if rows is not None:
                application().local_data[rows] = content.of(df.schema.json())
        return df

    def slices(call: Call, proceed: Proceed) -> Any:
        """Note a range whose number of slices the script leaves open: explicit recovery points pin its splits."""
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

    PySpark broadcasts the commands of large functions by the same method. The variables themselves are not held: their
    values stay in PySpark's files until the application ends or they are destroyed, and are read when needed.
    """

    def broadcast(_: Call, proceed: Proceed) -> Any:
        variable = proceed()
        known()[number_of_broadcast(variable)] = without_hold(variable)
        return variable

    return broadcast


def _note_sample(df: Any, draws: Draws, *, given: Any = None) -> None:
    """Note the seed of a sample, unless the script has given it."""
    seed = seed_of_sample(df)
    if seed is not None and (given is None or seed != int(given)):
        draws.note(seed)
