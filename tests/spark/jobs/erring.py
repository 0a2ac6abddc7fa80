"""Actions that fail: once, and for good. Writes down what the script gets of each.

Usage: erring.py TARGET
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

target = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()


@F.udf("long")
def refused(number: int) -> int:
    raise ValueError(f"no {number}")


@F.udf("long")
def late(number: int) -> int:
    if not target.with_suffix(".late").exists():
        target.with_suffix(".late").touch()
        raise ValueError("not yet")
    return number


actions = {
    "once": lambda: len(spark.range(3).select(late("id")).collect()),
    "function": lambda: spark.range(3).select(refused("id")).collect(),
    "table": lambda: spark.range(3).write.insertInto("there_is_none"),
    "division": lambda: spark.range(3).selectExpr("assert_true(id < 2)").collect(),
}
found = {}
for name, action in actions.items():
    try:
        found[name] = str(action())
    except Exception as error:  # noqa: BLE001 - all of them are compared
        found[name] = type(error).__name__
target.write_text(json.dumps(found))
