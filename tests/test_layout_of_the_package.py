"""Where things stand in the package: names that are unique, and all of py4j in one room."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_provider"
DISCOVERED = {"__init__", "__main__", "conftest", "spark_recovery"}
"""Names that Python or pytest gives, or that users import from ``operators`` and ``hooks``."""
OF_PY4J = re.compile(r"\._j(?!udge)[a-z]\w*|\b(from|import) py4j\b")


def test_no_two_modules_have_one_name() -> None:
    """Whoever is told a module's name finds one file, in the package and in the tests."""
    for folder in (PACKAGE, ROOT / "tests"):
        places = defaultdict(list)
        for file in folder.rglob("*.py"):
            if file.stem not in DISCOVERED:
                places[file.stem].append(file.relative_to(ROOT).as_posix())
        assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_test_imports_another_one() -> None:
    """What several tests use stands in modules of its own."""
    imports = re.compile(r"^(?:from|import) tests\.(?:\w+\.)*test_\w+", re.MULTILINE)
    tests = ROOT / "tests"
    found = {
        file.relative_to(tests).as_posix(): names
        for file in tests.rglob("*.py")
        if (names := [name for name in imports.findall(file.read_text()) if not name.endswith(f".{file.stem}")])
    }
    assert found == {}


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


def test_nothing_that_reads_the_store_unpickles() -> None:
    """What is stored can run no code: pickles are read of the script's own functions, and by Spark of its own tasks."""
    loads = re.compile(r"\b(import|from) \w*(pickle|marshal|shelve|dill|joblib)\b|\w*PickleSerializer\b")
    readers = {
        file.relative_to(PACKAGE).parent.as_posix() for file in PACKAGE.rglob("*.py") if loads.search(file.read_text())
    }
    assert readers == {"spark/identity", "spark/identity/functions", "spark/jvm"}
