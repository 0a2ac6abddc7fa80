"""What the driver asks its executors for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.spark import environment
from tests.spark.attempts import Attempts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.parametrize(
    ("drivers", "theirs", "lack"),
    [
        ("5ea1" * 16, "5ea1" * 16, ""),
        ("5ea1" * 16, "", "the executors cannot reach the event store: .* this process has none"),
        ("5ea1" * 16, "01d5" * 16, f"cannot verify what the driver has stored; .* {INTEGRITY_SECRET}"),
        ("", "5ea1" * 16, f"cannot verify what the driver has stored; .* {INTEGRITY_SECRET}"),
    ],
    ids=["same", "none", "another", "theirs alone"],
)
def test_executors_need_the_drivers_integrity_secret(
    spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, drivers: str, theirs: str, lack: str
) -> None:
    """They are asked before anything is stored; a lack is named with the variable that they need."""

    def there(_: SparkSession, probe: Callable[[Iterable[int]], Iterable[str]]) -> list[str]:
        with monkeypatch.context() as machine:
            machine.setenv(INTEGRITY_SECRET, theirs)
            return list(probe(()))

    monkeypatch.setenv(INTEGRITY_SECRET, drivers)
    monkeypatch.setattr(environment, "_asked", there)
    with attempts.attempt() as context:
        found = environment._ask_for_the_store(context, spark)
    assert re.search(lack, found)
    assert bool(found) == bool(lack)
