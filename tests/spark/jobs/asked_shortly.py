"""A short query asks a Python function, and an equal one that waits behind its shuffle for a file asks again, later.

Usage: asked_shortly.py SOURCE WORLD RUN
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

source, run = sys.argv[1], sys.argv[3]
world = Path(sys.argv[2])
answer, gate, behind = world / "answer", world / "gate", world / "behind"
spark = SparkSession.builder.getOrCreate()


def ask() -> DataFrame:
    asked = F.udf(lambda _: answer.read_text(), "string", useArrow=False)
    return spark.read.parquet(source).select(asked("customer").alias("answer")).groupBy("answer").count()


def passes(_: str) -> bool:
    import time

    behind.touch()
    while not gate.exists():
        time.sleep(0.05)
    return True


def warm_up(_: int) -> int:
    return 1


warmed = spark.range(100).select(F.udf(warm_up, "long", useArrow=False)("id").alias("one")).groupBy("one").count()
warmed.collect()
answer.write_text(f"run {run}, at first")
short = ask()
first = short.collect()
(world / f"first-{run}").touch()
while not (world / "go").exists():
    time.sleep(0.05)
answer.write_text(f"run {run}, later")
second = ask().withColumn("passed", F.udf(passes, "boolean", useArrow=False)("answer")).collect()
(world / f"answers-{run}").write_text(json.dumps([first[0].answer, second[0].answer]))
