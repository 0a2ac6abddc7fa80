"""Where things stand in the package: all of py4j in one room."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "airflow_provider"
OF_PY4J = re.compile(r"\._j(?!udge)[a-z]\w*|\b(from|import) py4j\b")


def test_all_of_py4j_stands_in_one_package() -> None:
    """What PySpark's objects hide of the JVM is asked in ``spark/jvm`` alone."""
    spark = PACKAGE / "spark"
    found = {
        file.relative_to(spark).as_posix(): names
        for file in spark.rglob("*.py")
        if "jvm" not in file.relative_to(spark).parts
        and (names := [match[0] for match in OF_PY4J.finditer(file.read_text())])
    }
    assert found == {}
