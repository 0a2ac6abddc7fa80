"""What auto mode knows of the shuffles of one Spark application; it ends with the application.

Spark counts its shuffles from 0 in each application, and so does everything that is kept under those numbers.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider.spark.auto.shuffle_vertex import ShuffleVertex
    from airflow_provider.spark.map_output import MapOutput


@dataclass
class ShuffleRegistry:
    """The shuffles of one application.

    :ivar vertices: Spark's shuffle id → the vertex whose map outputs it has
    :ivar put_back: Spark's shuffle id → map outputs that were put back, by executor; Spark does not delete their files
    :ivar occurrences: identity → how many shuffles of it this application has come to
    """

    vertices: dict[int, ShuffleVertex] = field(default_factory=dict)
    put_back: dict[int, list[tuple[tuple[str, str], MapOutput]]] = field(default_factory=dict)
    occurrences: Counter[str] = field(default_factory=Counter)
    lock: threading.RLock = field(default_factory=threading.RLock)
