"""A call of PySpark that recovery has something to do with, as one value, and the stages that it passes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


class Kind(enum.Enum):
    """What a method does that recovery has something to do with."""

    SESSION = enum.auto()
    """A session is made."""
    LOCAL_DATA = enum.auto()
    """Rows of the driver become a DataFrame."""
    BROADCAST = enum.auto()
    RANGE = enum.auto()
    DRAW = enum.auto()
    """A function of ``pyspark.sql.functions`` that draws by chance."""
    SAMPLE = enum.auto()
    SPLIT = enum.auto()
    QUERY = enum.auto()
    """A DataFrame's own query runs. All methods that return rows come to one of these."""
    COUNT = enum.auto()
    SHOW = enum.auto()
    """A DataFrame tells something of its rows by a query that nobody can see."""
    TO_RDD = enum.auto()
    CACHE = enum.auto()
    """A DataFrame is marked to be cached."""
    SQL = enum.auto()
    READ = enum.auto()
    """Files or a table become a DataFrame."""
    SETTING = enum.auto()
    """``df.write`` is set up."""
    WRITE = enum.auto()
    """``df.write`` writes."""
    TABLE = enum.auto()
    """``df.writeTo`` or ``df.mergeInto`` names its table."""
    ADD_TO_TABLE = enum.auto()
    """``df.writeTo`` adds rows, or ``df.mergeInto`` merges them."""
    REPLACE_TABLE = enum.auto()
    """``df.writeTo`` makes a table or replaces rows of it."""
    SAVE_RDD = enum.auto()
    """An RDD writes to the folder that is its first argument."""
    SAVE_RDD_BY_CONFIGURATION = enum.auto()
    """An RDD writes where only a Hadoop configuration says."""
    STREAM = enum.auto()
    """A streaming query starts."""
    SAVE_MODEL = enum.auto()
    """MLlib writes a model, a pipeline or another of its objects."""
    CATALOG = enum.auto()
    """``spark.catalog`` makes, changes or drops something of the catalog."""
    FOREACH = enum.auto()
    """A function of the script's runs on executors for what it does there."""


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
"""What leaves something outside of the event store; SQL may."""


@dataclass(frozen=True)
class Call:
    """A script's call of a method.

    :ivar owner: what the method belongs to: a session, a DataFrame, a writer, an RDD, a model; ``None`` for a function
    :ivar name: of the method
    """

    kind: Kind
    owner: Any
    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def argument(self, position: int, name: str) -> Any:
        """Return an argument that may be given by its position or its name; ``None`` if it is not given."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    @property
    def text_alone(self) -> bool:
        """Whether SQL comes without parameters."""
        return len(self.args) + len(self.kwargs) == 1


Proceed: TypeAlias = Callable[[], Any]
Stage: TypeAlias = Callable[[Call, Proceed], Any]
"""Does its part of a call and returns what the script gets; usually what *proceed* returns."""
Stages: TypeAlias = Mapping[Kind, Stage]
