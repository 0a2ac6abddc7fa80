"""Two recovery points on a cluster of some size; while tasks of the first one run, another thread looks on.

The first is made of all that is cut by the size of the cluster, by SQL over a view and a registered function. The
second reads a cached frame below its shuffle.

Usage: looked_on.py FOLDER TARGET, where FOLDER/source is what is read, FOLDER/attempt names the attempt, FOLDER/gate
lets the tasks of other partitions than the first one end, and FOLDER/ATTEMPT.seen gets what was seen
"""

import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from airflow_provider.spark import checkpoint

SETTING = "spark.sql.leafNodeDefaultParallelism"
folder, target = Path(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.getOrCreate()


def place(name: str) -> Path:
    """A file of this attempt, of which the functions know nothing: else they would be others in each."""
    return folder / f"{(folder / 'attempt').read_text()}.{name}"


def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    place("begun").touch()
    while not place("seen").exists() or (TaskContext.get().partitionId() > 0 and not (folder / "gate").exists()):
        time.sleep(0.05)
    yield from batches


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    place(f"{uuid.uuid4()}.call").touch()
    yield from batches


def look() -> None:
    while not place("begun").exists():
        time.sleep(0.05)
    partitions = spark.sql("SELECT id FROM range(100)").rdd.getNumPartitions()
    found = {"setting": spark.conf.get(SETTING, None), "partitions": partitions}
    place("part").write_text(json.dumps(found))
    place("part").rename(place("seen"))


def main() -> None:
    spark.read.parquet(str(folder / "source")).createOrReplaceTempView("source_rows")
    spark.udf.register("plus_one", lambda number: number + 1, "long")
    kept = spark.table("source_rows").mapInArrow(counted, "id long").cache()
    kept.count()
    looking = threading.Thread(target=look)
    looking.start()
    rows = spark.sql(
        "SELECT plus_one(id) AS id FROM source_rows UNION ALL SELECT id FROM range(1000, 1040) "
        "UNION ALL SELECT CAST(n AS BIGINT) FROM VALUES (2000), (2001), (2002), (2003) AS given(n)"
    )
    held_rows = checkpoint(rows.mapInArrow(held, "id long"), "held")
    looking.join()
    doubled = checkpoint(kept.union(kept).groupBy("id").count().selectExpr("id + count AS id"), "cached")
    held_rows.union(doubled).coalesce(1).write.mode("overwrite").parquet(target)


main()
