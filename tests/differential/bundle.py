"""Many cases in one script, so that a Spark application starts once for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.differential.case import SHARED, STOPPING, TABLES, Case
from tests.differential.generator import generate

HEAD = """\
import datetime as dt
import os
import random
import shutil
import threading
import uuid
from decimal import Decimal
from pathlib import Path

from oracle import Script, fresh_folder
from pyspark.sql import Observation, Row, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

import imported_functions
"""

SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"spark.sql.autoBroadcastJoinThreshold": "-1"},
    {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.adaptive.coalescePartitions.enabled": "false"},
    {"spark.sql.autoBroadcastJoinThreshold": "4000"},
    {"spark.sql.adaptive.enabled": "false"},
    {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"},
    {"spark.sql.ansi.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"},
    {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "2000",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.2",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "2000",
    },
    {"spark.sql.session.timeZone": "America/New_York", "spark.sql.shuffle.partitions": "7"},
    {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.files.maxPartitionBytes": "20000"},
    {"spark.sql.execution.arrow.pyspark.enabled": "true", "spark.sql.adaptive.autoBroadcastJoinThreshold": "3000"},
)
"""What whole scripts are run with; the first of all is a user who sets nothing."""

FIXED = {"spark.sql.session.timeZone": "UTC"}


@dataclass(frozen=True)
class Bundle:
    """A script of some cases.

    :ivar number: its place in the run, which with the run's seed makes it again
    """

    number: int
    cases: tuple[Case, ...]
    settings: dict[str, str] = field(default_factory=dict)
    kind: str = SHARED

    def script(self) -> str:
        """The script's whole text."""
        settings = json.dumps({**FIXED, **self.settings}, indent=4)
        script = f"script = Script({settings}, hive={self.kind == TABLES})\n"
        cases = "\n\n".join(f"@script.case\n{case.text()}" for case in self.cases)
        return f"{HEAD}\n{script}\n\n{cases}\n\nscript.run()\n"


def bundles(seed: int, cases: int, size: int) -> list[Bundle]:
    """Return the scripts of a run, one case each family first in turn, so that a short run has something of all.

    :param size: most cases of one script
    """
    random = Random(f"bundles {seed}")
    made: list[Bundle] = []
    kinds: dict[str, list[Case]] = {SHARED: [], STOPPING: [], TABLES: []}
    for case in generate(seed, cases):
        kinds[case.kind].append(case)
    for kind, of_kind in kinds.items():
        for part in _parts(of_kind, size):
            settings = random.choice(SETTINGS) if made else {}
            made.append(Bundle(len(made), tuple(part), settings, kind))
    return made


def of_cases(cases: Iterable[Case], size: int = 100) -> list[Bundle]:
    """Return scripts of given cases, for each kind that they need.

    :param size: most cases of one script
    """
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        kinds.setdefault(case.kind, []).append(case)
    parts = [(kind, part) for kind, of_kind in kinds.items() for part in _parts(of_kind, size)]
    return [Bundle(number, tuple(part), {}, kind) for number, (kind, part) in enumerate(parts)]


def _parts(cases: Sequence[Case], size: int) -> list[Sequence[Case]]:
    """Equal shares of at most *size*."""
    number = -(-len(cases) // size)
    return [cases[part::number] for part in range(number)]
