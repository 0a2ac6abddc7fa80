"""An intercepted call of PySpark as one value (:class:`Call`), and the stages that handle it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


class Kind(enum.Enum):
    """What an intercepted method does."""

    SESSION = enum.auto()
    """Makes a session."""
    CONNECT = enum.auto()
    """Makes a session of Spark Connect, of whose calls none is intercepted."""
    LOCAL_DATA = enum.auto()
    """Makes a DataFrame of the driver's rows."""
    BROADCAST = enum.auto()
    RANGE = enum.auto()
    DRAW = enum.auto()
    """Calls a random function of ``pyspark.sql.functions``."""
    SAMPLE = enum.auto()
    SPLIT = enum.auto()
    QUERY = enum.auto()
    """Runs a DataFrame's own query. All methods that return rows end in one of these."""
    COUNT = enum.auto()
    SHOW = enum.auto()
    """Shows something about a DataFrame's rows through a query that nothing can observe."""
    PIVOT = enum.auto()
    """Turns values of a column into columns; runs a query for these values, unless they are given."""
    CHECKPOINT = enum.auto()
    """Computes a DataFrame's rows and keeps them as Spark's checkpoint."""
    TO_RDD = enum.auto()
    CACHE = enum.auto()
    """Marks a DataFrame to be cached."""
    CACHE_TABLE = enum.auto()
    """Marks a table or view to be cached, by its name."""
    SQL = enum.auto()
    READ = enum.auto()
    """Makes a DataFrame of files or a table."""
    SETTING = enum.auto()
    """Sets up ``df.write``."""
    WRITE = enum.auto()
    """Writes with ``df.write``."""
    TABLE = enum.auto()
    """Names the table of ``df.writeTo`` or ``df.mergeInto``."""
    ADD_TO_TABLE = enum.auto()
    """Adds rows with ``df.writeTo``, or merges them with ``df.mergeInto``."""
    REPLACE_TABLE = enum.auto()
    """Creates a table, or replaces rows of one, with ``df.writeTo``."""
    SAVE_RDD = enum.auto()
    """Writes an RDD to the folder that is its first argument."""
    SAVE_RDD_BY_CONFIGURATION = enum.auto()
    """Writes an RDD where only a Hadoop configuration says."""
    STREAM = enum.auto()
    """Starts a streaming query."""
    SAVE_MODEL = enum.auto()
    """Writes a model, a pipeline or another object of MLlib."""
    CATALOG = enum.auto()
    """Creates, changes or drops something in the catalog by ``spark.catalog``."""
    FOREACH = enum.auto()
    """Runs a function of the script on executors for its side effects."""
    CALL_SITE = enum.auto()
    """Finds the line of the script that has called Spark; Spark describes jobs by it."""


WRITES = frozenset(
    {
        Kind.WRITE,
        Kind.ADD_TO_TABLE,
        Kind.REPLACE_TABLE,
        Kind.SAVE_RDD,
        Kind.SAVE_RDD_BY_CONFIGURATION,
        Kind.STREAM,
        Kind.SAVE_MODEL,
        Kind.CATALOG,
        Kind.FOREACH,
    }
)
"""The kinds that leave something outside the event store. SQL may, too."""


@dataclass(frozen=True)
class Call:
    """One call that the script makes.

    :ivar owner: the object that the method belongs to: a session, DataFrame, writer, RDD or model; ``None`` for a
        function
    :ivar name: the method's
    """

    kind: Kind
    owner: Any
    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def argument(self, position: int, name: str) -> Any:
        """Return an argument given by position or by name; ``None`` if it is not given."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    @property
    def eager(self) -> bool:
        """Whether a checkpoint is made now, not by whatever reads it first."""
        return self.argument(0, "eager") in (None, True)

    @property
    def text_alone(self) -> bool:
        """Whether SQL comes without parameters."""
        return len(self.args) + len(self.kwargs) == 1

    @property
    def text_and_values(self) -> bool:
        """Whether SQL comes with values for its parameters, and nothing else."""
        return self.argument(1, "args") is not None and len(self.args) + len(self.kwargs) == 2


Proceed: TypeAlias = Callable[[], Any]
Stage: TypeAlias = Callable[[Call, Proceed], Any]
"""Does its part of a call and returns what the script gets, usually what *proceed* returns."""
Stages: TypeAlias = Mapping[Kind, Stage]
