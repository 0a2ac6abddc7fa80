"""A module is changed when it is imported, before anybody uses it, and only then."""

from __future__ import annotations

import importlib
import inspect
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from airflow_provider.spark.late_imports import when_imported

NAME = "imported_late"
SOURCE = "VALUE = 1\n\n\ndef value():\n    return VALUE\n"


@pytest.fixture(params=["folder", "zip"])
def importable(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that can be imported; PySpark's lie in an archive where a cluster brings them."""
    if request.param == "folder":
        (tmp_path / f"{NAME}.py").write_text(SOURCE)
        monkeypatch.syspath_prepend(tmp_path)
    else:
        with zipfile.ZipFile(tmp_path / "modules.zip", "w") as archive:
            archive.writestr(f"{NAME}.py", SOURCE)
        monkeypatch.syspath_prepend(tmp_path / "modules.zip")
    yield
    sys.modules.pop(NAME, None)


def change(module: ModuleType) -> None:
    module.VALUE += 1  # type: ignore[attr-defined]


@pytest.mark.usefixtures("importable")
def test_a_module_is_changed_when_it_is_imported() -> None:
    """Once; it is not imported for that, and keeps its own loader."""
    before = list(sys.meta_path)
    with when_imported({NAME: change}):
        assert NAME not in sys.modules
        for _ in range(2):
            assert importlib.import_module(NAME).value() == 2
    module = sys.modules[NAME]
    assert inspect.getsource(module.value) == "def value():\n    return VALUE\n"
    assert module.__loader__ is module.__spec__.loader  # type: ignore[union-attr]
    assert type(module.__loader__).__module__ != when_imported.__module__
    assert sys.meta_path == before


@pytest.mark.usefixtures("importable")
def test_a_module_that_is_there_is_changed_at_once() -> None:
    """A script may have been preceded by whoever imported it."""
    module = importlib.import_module(NAME)
    with when_imported({NAME: change}):
        assert module.value() == 2


@pytest.mark.usefixtures("importable")
def test_a_module_that_is_imported_afterwards_is_left_alone() -> None:
    """Also where one within another was waited for."""
    with when_imported({NAME: change}), when_imported({}):
        pass
    assert importlib.import_module(NAME).value() == 1


def test_a_module_that_is_nowhere_stays_so() -> None:
    """Importing it fails as it does without."""
    with when_imported({"nowhere_at_all": change}), pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        importlib.import_module("nowhere_at_all")
