"""Usage: sql_only.py TABLES TARGET. Temporary views, common table expressions, nested subqueries, windows, cubes."""

import sys

from pyspark.sql import SparkSession

tables, target = sys.argv[1:3]
spark = SparkSession.builder.appName("sql-only").getOrCreate()

for table in ("customer", "orders", "lineitem", "part", "partsupp", "supplier"):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {table} USING parquet OPTIONS (path '{tables}/{table}')")

spark.sql(
    """
    CREATE OR REPLACE TEMPORARY VIEW spending AS
    SELECT c_custkey, c_mktsegment, year(o_orderdate) AS year, sum(o_totalprice) AS spent, count(*) AS orders
    FROM customer JOIN orders ON c_custkey = o_custkey
    GROUP BY c_custkey, c_mktsegment, year(o_orderdate)
    """
)

QUERIES = {
    "best_customers": """
        WITH ranked AS (
            SELECT *, row_number() OVER (PARTITION BY c_mktsegment, year ORDER BY spent DESC, c_custkey) AS place,
                   sum(spent) OVER (PARTITION BY c_mktsegment, year) AS segment_spent
            FROM spending
        ), best AS (SELECT * FROM ranked WHERE place <= 3)
        SELECT *, spent / segment_spent AS share FROM best
        WHERE c_custkey IN (SELECT c_custkey FROM best GROUP BY c_custkey HAVING count(*) >= 1)
        ORDER BY c_mktsegment, year, place
    """,
    "cube": """
        SELECT c_mktsegment, year, sum(spent) AS spent, sum(orders) AS orders, grouping_id() AS level
        FROM spending GROUP BY CUBE (c_mktsegment, year)
    """,
    "above_average": """
        SELECT s.c_custkey, s.year, s.spent FROM spending s
        WHERE s.spent > 2 * (SELECT avg(t.spent) FROM spending t WHERE t.year = s.year)
          AND EXISTS (SELECT 1 FROM orders o WHERE o.o_custkey = s.c_custkey AND o.o_orderpriority = '1-URGENT')
    """,
    "cheapest_parts": """
        SELECT p_partkey, p_name, s_name, ps_supplycost
        FROM part JOIN partsupp ON p_partkey = ps_partkey JOIN supplier ON s_suppkey = ps_suppkey
        WHERE ps_supplycost = (SELECT min(ps_supplycost) FROM partsupp WHERE ps_partkey = p_partkey)
          AND p_partkey NOT IN (SELECT l_partkey FROM lineitem WHERE l_quantity = 50)
    """,
    "either_or_both": """
        (SELECT o_custkey FROM orders WHERE year(o_orderdate) = 1995
         INTERSECT SELECT o_custkey FROM orders WHERE year(o_orderdate) = 1996)
        EXCEPT SELECT o_custkey FROM orders WHERE year(o_orderdate) = 1997
    """,
}
for name, query in QUERIES.items():
    spark.sql(query).write.mode("overwrite").parquet(f"{target}/{name}")
