"""Ask Spark again and again, whatever it answers. Usage: going_on.py STARTED STOPPED OPENED.

STARTED is written when Spark has answered, with the ids of its JVM and of this process; when STOPPED is there, the
script stops Spark and touches ``STOPPED.done``; when OPENED is there, it ends.
"""

import os
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider.spark.jvm.driver_jvm import driver_jvm

started, stopped, opened = map(Path, sys.argv[1:])
spark = SparkSession.builder.getOrCreate()
spark.range(10).count()
jvm = driver_jvm()
assert jvm is not None
beside = started.with_suffix(".new")
beside.write_text(f"{jvm.pid} {os.getpid()}")
beside.rename(started)
for number in count():
    if opened.exists():
        break
    if stopped.exists():
        spark.stop()
        Path(f"{stopped}.done").touch()
        while not opened.exists():
            time.sleep(0.05)
        break
    with suppress(Exception):
        spark.range(10).count()
        Path(f"{started}.answers").write_text(str(number))
    time.sleep(0.05)
