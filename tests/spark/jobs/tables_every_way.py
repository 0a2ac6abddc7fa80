"""Write the same rows to tables in the ways that Spark knows, and say what is in them then.

Usage: tables_every_way.py WAY CATALOG PROVIDER. WAY is one of these ways, or ``every way``.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

wanted, catalog, provider = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()


def rows() -> DataFrame:
    slowly = "aggregate(sequence(1, 300), cast(id AS string), (text, _) -> sha2(text, 256))"
    lines = spark.range(0, 3000, 1, 3).selectExpr("id", f"id % 20 + length({slowly}) - 64 AS key")
    return lines.groupBy("key").agg(F.sum("id").alias("ids"), F.count("*").alias("many"))


TO_NEW = {
    "create": lambda table: rows().writeTo(table).using(provider).create(),
    "saveAsTable": lambda table: rows().write.format(provider).saveAsTable(table),
    "CREATE": lambda table: spark.sql(
        f"CREATE TABLE {table} USING {provider} PARTITIONED BY (many) AS SELECT * FROM made"
    ),
}
TO_EXISTING = {
    "append": lambda table: rows().writeTo(table).append(),
    "overwrite": lambda table: rows().writeTo(table).overwrite(F.col("key") == 1),
    "overwritePartitions": lambda table: rows().writeTo(table).overwritePartitions(),
    "createOrReplace": lambda table: rows().writeTo(table).using(provider).createOrReplace(),
    "replace": lambda table: rows().writeTo(table).using(provider).partitionedBy(F.col("many")).replace(),
    "insertInto": lambda table: rows().write.insertInto(table),
    "insertInto, overwriting": lambda table: rows().write.insertInto(table, overwrite=True),
    "saveAsTable, appending": lambda table: rows().write.format(provider).mode("append").saveAsTable(table),
    "saveAsTable, overwriting": lambda table: rows().write.format(provider).mode("overwrite").saveAsTable(table),
    "save, appending": lambda table: rows().write.format(provider).mode("append").save(table),
    "INSERT": lambda table: spark.sql(f"INSERT INTO {table} SELECT * FROM made"),
    "INSERT OVERWRITE": lambda table: spark.sql(f"INSERT OVERWRITE {table} SELECT * FROM made"),
    "REPLACE": lambda table: spark.sql(f"CREATE OR REPLACE TABLE {table} USING {provider} AS SELECT * FROM made"),
    "MERGE": lambda table: spark.sql(
        f"MERGE INTO {table} t USING made ON t.key = made.key "
        "WHEN MATCHED THEN UPDATE SET ids = made.ids WHEN NOT MATCHED THEN INSERT *"
    ),
}

rows().createOrReplaceTempView("made")
for number, (way, write) in enumerate({**TO_NEW, **TO_EXISTING}.items()):
    if wanted not in (way, "every way"):
        continue
    table = f"{catalog}.db.table_{number}"
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    if way in TO_EXISTING:
        spark.sql(f"CREATE TABLE {table} (key BIGINT, ids BIGINT, many BIGINT) USING {provider}")
        spark.sql(f"INSERT INTO {table} VALUES (1, 1, 1)")
    write(table)
    sys.stdout.write(f"written {way}: {sorted(map(tuple, spark.table(table).collect()))}\n")
    sys.stdout.flush()
