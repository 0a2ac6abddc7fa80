"""What identities need to know of a script besides its plans; above all, the random draws that it leaves to Spark.

Each draw has its own identity, which the next attempt finds again. An unseeded ``rand()`` or ``sample()`` gets its seed
from PySpark, the JVM, or Spark's analyzer, and a different one in each attempt. What stays the same is the draw's
position in the script. Seeds that are known when the script makes the draw are noted then, in the order of the script;
the others when a fingerprint first meets them, which for explicit recovery points is the order of the script, too.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider.core.run_values import Value, value_of_one_run
from airflow_provider.spark.jvm.scala import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from airflow_provider.spark.identity.functions import FunctionReader
    from airflow_provider.spark.jvm.plan_walk import ClassShape
    from airflow_provider.spark.jvm.sources import LocalRows

SMALLEST = 2**32
"""A seed nearer to zero was given by the script: among seeds of 64 random bits, one in two billion is."""


class Draws:
    """The draws of one script in one attempt, and its sources without a version, which are asked once each."""

    def __init__(self) -> None:
        self._places: dict[str, Numbers] = {}
        self._noted: dict[int, int] = {}
        self._met: dict[int, int] = {}
        self._unnamed = 0

    def note(self, seed: int) -> None:
        """Note a seed that was drawn just now, because the script gave none."""
        if abs(seed) >= SMALLEST:
            self._noted.setdefault(seed, len(self._noted))

    def drawn(self, seed: int, *, left_open: bool) -> bool:
        """Whether *seed* was drawn, and not given by the script.

        :param left_open: whether the plan shows that the script gave no seed, or cannot show that it gave one
        """
        return seed in self._noted or (left_open and abs(seed) >= SMALLEST)

    def name(self, seed: int, *, left_open: bool) -> str:
        """Return what represents *seed* in an identity: the draw, or the seed itself if the script gave it.

        :param left_open: see :meth:`drawn`
        """
        if seed in self._noted:
            return f"draw {self._noted[seed]}"
        if self.drawn(seed, left_open=left_open):
            return f"draw {self._met.setdefault(seed, len(self._met))} of the analyzer"
        return f"seed {seed}"

    def place(self, spark: Any, asked: str, made: Any) -> int:
        """Return a source's position, in the order of the script, among those that ask for the same.

        :param made: the JVM's object that represents it
        """
        if asked not in self._places:
            self._places[asked] = Numbers(spark)
        return self._places[asked].of(made)

    def unnamed(self) -> str:
        """Return what represents a draw whose seed Spark has not drawn yet."""
        self._unnamed += 1
        return f"draw {self._unnamed} of the planner"


class DrawsOfOnePlan(Draws):
    """The same, counted in one plan: a script that skips what it has done makes fewer of them in a retry."""

    def __init__(self, script: Draws) -> None:
        super().__init__()
        self._script = script

    def name(self, seed: int, *, left_open: bool) -> str:
        """Return what represents *seed* in an identity: the draw, or the seed itself if the script gave it."""
        if self._script.drawn(seed, left_open=left_open):
            return f"draw {self._met.setdefault(seed, len(self._met))} of the plan"
        return f"seed {seed}"


class RunMarks:
    """The values by which a script marks the rows of one attempt. Make it when the attempt starts."""

    def __init__(self) -> None:
        self._began = time.time()

    def of(self, session: Any) -> Callable[..., str]:
        """Return a function that says which of some values marks this attempt alone; empty if none does.

        :param session: whose application's id is a mark
        """

        @functools.cache
        def application() -> str:
            context = getattr(session, "sparkContext", None)  # a session of Spark Connect has none
            return str(context.applicationId) if context is not None else ""

        def mark(*values: Value) -> str:
            return value_of_one_run(values, self._began, time.time(), application())

        return mark


class KnownOfApplication(Protocol):
    """Facts keyed by numbers that each Spark application counts from 0.

    :ivar local_data: RDD id → rows given to ``createDataFrame``
    :ivar broadcasts: broadcast id → where its pickled value is
    :ivar ranges: expression ids of ranges for which the script left the number of slices open
    :ivar shapes: JVM class → what it holds
    :ivar functions: tells Python functions apart
    """

    local_data: dict[int, LocalRows]
    broadcasts: dict[int, Any]
    ranges: set[int]
    shapes: dict[str, ClassShape]
    functions: FunctionReader


class Known(Protocol):
    """Facts about the script besides its plans; a recovery context has them.

    :ivar draws: random draws that the script left to Spark
    """

    draws: Draws

    @property
    def source_version(self) -> str:
        """The version that is given for all sources without one; empty if none is."""

    def state_read(self, what: Collection[str]) -> str:
        """Return what represents the state of *what* Python functions read by themselves, if no version is given."""

    @property
    def application(self) -> KnownOfApplication:
        """The facts about the script's current Spark application."""
