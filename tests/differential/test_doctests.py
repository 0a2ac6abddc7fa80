"""PySpark's own doctests under recovery."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.doctests import MODULES, run_doctests


@pytest.mark.walk
@pytest.mark.process
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_end_as_without_recovery(tmp_path: Path, module: str) -> None:
    """The examples in PySpark's documentation pass or fail under recovery as they do without."""
    done = run_doctests(module, tmp_path)
    assert done.examples > done.failing
    assert done.differences() == []
