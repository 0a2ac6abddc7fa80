"""Jars that Spark 3.5 needs for some tests, from the package index: ``tools/setup.sh s3a iceberg`` fetches them."""

from __future__ import annotations

import os

import pytest

from tests.support.sparks import OTHERS, REQUIRED, ROOT

SPARK = next(version for version in OTHERS if version.startswith("3.5."))
"""The version that they are for."""


def class_path(name: str) -> str:
    """Return what goes to ``spark.driver.extraClassPath``; without it the test is skipped, or fails in CI.

    :param name: ``s3a`` or ``iceberg``
    """
    folder = ROOT / ".tools" / "jars" / name
    if not (folder / "complete").exists():
        reason = f"no jars for {name}; to fetch them: tools/setup.sh {name}"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return os.pathsep.join(str(jar) for jar in sorted(folder.glob("*.jar")))
