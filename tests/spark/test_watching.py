"""What is learnt from watching a script; no Spark runs."""

from __future__ import annotations

import pytest

from airflow_provider.spark.watching import Watched, watch


def test_nothing_of_it_is_believed_of_the_next_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark counts its RDDs and broadcast variables from 0 again, so an id would stand for other rows."""
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "stop", lambda _: None)
    watched = Watched(local_data={7: "rows"}, broadcasts={3: object()}, seeds={"42"})
    restore = watch(watched)
    try:
        SparkContext.stop(object())  # type: ignore[arg-type]
    finally:
        restore()
    assert (watched.local_data, watched.broadcasts) == ({}, {})
    assert watched.seeds == {"42"}, "a seed means the same everywhere"
