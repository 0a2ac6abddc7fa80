"""Append 100 rows to a folder, or to a table of a database, behind two gates, between which something is recorded.
Fails at its end if it is told to. Usage: noted_append.py files|jdbc TARGET GATE.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider.spark.context import recording


def wait(gate: str) -> None:
    Path(f"{gate}.reached").touch()
    while not Path(gate).exists():
        time.sleep(0.05)


how, target, gate = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()
frame = spark.range(0, 100, 1, 2)
wait(gate)
recording().master.vertex_skipped("nothing", "it is only noted")
wait(f"{gate}.second")
if how == "files":
    frame.write.mode("append").parquet(target)
else:
    options = {"driver": "org.apache.derby.jdbc.EmbeddedDriver"}
    frame.write.jdbc(f"jdbc:derby:{target};create=true", "added", "append", options)
sys.exit("it fails at its end" if Path(f"{gate}.fails").exists() else 0)
