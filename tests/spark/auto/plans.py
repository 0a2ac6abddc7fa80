"""What a query's executed plan holds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def joins(df: DataFrame) -> list[str]:
    """The joins and reads of an adaptive plan that has run."""
    text = df._jdf.queryExecution().executedPlan().toString().split("== Initial Plan ==")[0]
    return re.findall(r"(BroadcastHashJoin|SortMergeJoin|ShuffledHashJoin|AQEShuffleRead \w+)", text)
