"""What identities need to know of a script beside its plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow_provider.spark.identity.draws import Draws
    from airflow_provider.spark.identity.functions import FunctionReader
    from airflow_provider.spark.jvm.class_shapes import ClassShape


class KnownOfApplication(Protocol):
    """What goes by numbers that each Spark application counts from 0.

    :ivar local_data: RDD id → digest of rows given to ``createDataFrame``
    :ivar broadcasts: broadcast id → where its pickled value is
    :ivar ranges: expression ids of ranges whose number of slices the script left open
    :ivar shapes: class of the JVM → what it holds
    :ivar functions: tells Python functions apart
    """

    local_data: dict[int, str]
    broadcasts: dict[int, Any]
    ranges: set[int]
    shapes: dict[str, ClassShape]
    functions: FunctionReader


class Known(Protocol):
    """What was learnt of the script beside its plans: a recovery context has it.

    :ivar draws: draws that the script left to Spark
    """

    draws: Draws

    @property
    def source_version(self) -> str:
        """The version that is given for all sources that tell none; empty text if none is."""

    @property
    def application(self) -> KnownOfApplication:
        """What is known of the Spark application that the script has now."""
