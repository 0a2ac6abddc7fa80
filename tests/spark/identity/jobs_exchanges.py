"""A driver of its own: prints the fingerprints of all shuffles of a benchmark's queries as JSON.

python -m tests.spark.identity.jobs_exchanges tpch FOLDER forward
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from airflow_provider.spark.identity.fingerprint import exchange_fingerprint
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from tests.queries.query_data import QuerySuite
from tests.spark.identity.hunt import exchanges
from tests.spark.identity.learnt import Learnt


def main(kind: str, folder: str, order: str) -> None:
    from pyspark.sql import SparkSession

    suite = QuerySuite(kind, Path(folder))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.autoBroadcastJoinThreshold", "-1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    for table in sorted(suite.tables.iterdir()):
        spark.read.parquet(str(table)).createOrReplaceTempView(table.name)
    numbers = suite.numbers
    if order == "backward":  # other ids of expressions, subqueries and plans by the time a query is planned
        numbers = numbers[::-1]
        spark.sql("SELECT uuid(), max(id + 1) FROM range(100) GROUP BY id % 7").collect()
    learnt = Learnt()
    found = {}
    for number in numbers:
        plan = spark.sql(suite.sql(number))._jdf.queryExecution().executedPlan()
        settings = QuerySettings(all_settings(spark))
        made = [exchange_fingerprint(spark, learnt, exchange, settings) for exchange in exchanges(plan)]
        found[number] = [{"digest": one.digest, "opaque": one.opaque} for one in made]
    Path(sys.argv[4]).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
