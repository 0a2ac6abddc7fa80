"""Other versions of Spark than the tests' own, in environments with what a cluster has.

``tools/setup.sh sparks`` makes one for each line of ``tools/spark-versions.txt``.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = tuple((ROOT / "tools" / "spark-versions.txt").read_text().split())
OWN = version("pyspark")
OLDEST = OTHERS[0]
EACH_OR_OLDEST = [
    version if version == OLDEST else pytest.param(version, marks=pytest.mark.walk)
    for version in sorted({*OTHERS, OWN})
]
"""Parameters for a test: each version in the walk; else the oldest, for the tests' own is what all others run on."""
REQUIRED = "SPARK_RECOVERY_REQUIRE_SPARKS"
"""Set to 1 where a missing environment must fail the tests instead of skipping them, as in CI."""


def spark_home(spark: str) -> Path:
    """Return the folder with this version's ``bin`` and ``jars``; see :func:`spark_python`."""
    (found,) = (Path(spark_python(spark)).parents[1]).glob("lib/python3*/site-packages/pyspark")
    return found


def spark_python(spark: str) -> str:
    """Return a Python that has this version of Spark; without one the test is skipped, or fails in CI."""
    if spark == OWN:
        return sys.executable
    environment = ROOT / ".tools" / "sparks" / spark
    if not (environment / "complete").exists():
        reason = f"no environment with Spark {spark}; to make it: tools/setup.sh sparks"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return str(environment / "bin" / "python")


def spark_of(python: str) -> str:
    """Return the version of Spark that one of these Pythons has."""
    return OWN if python == sys.executable else Path(python).parents[1].name
