from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import flights


@pytest.fixture(scope="session")
def dags() -> Path:
    return flights.DAGS


@pytest.fixture(scope="session")
def few_flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flights.few_flights(tmp_path_factory.mktemp("flights"))
