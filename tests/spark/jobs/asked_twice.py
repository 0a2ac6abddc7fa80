"""Two outputs ask a Python function the same, at two times; each waits behind its shuffle for a file.

Usage: asked_twice.py SOURCE WORLD TARGET RUN
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

source, world, target, run = sys.argv[1:5]
answer = Path(world) / "answer"
spark = SparkSession.builder.getOrCreate()


def ask() -> DataFrame:
    asked = F.udf(lambda _: answer.read_text(), "string", useArrow=False)
    return spark.read.parquet(source).select(asked("customer").alias("answer")).groupBy("answer").count()


def write(output: str) -> None:
    gate = Path(world) / f"gate {output}"

    def passes(_: str) -> bool:
        import time

        while not gate.exists():
            time.sleep(0.05)
        return True

    passed = F.udf(passes, "boolean", useArrow=False)("answer")
    ask().withColumn("passed", passed).write.parquet(f"{target}/{output}")


answer.write_text(f"run {run}, at first")
write("a")
answer.write_text(f"run {run}, later")
write("b")
