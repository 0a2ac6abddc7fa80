"""SQL as people write it: CTEs, subqueries, grouping sets, pivots, windows, set operations, lateral views."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.differential.case import Case
from tests.differential.cases.text import case

QUERIES = (
    "WITH a AS (SELECT k, sum(v) AS s, count(*) AS c FROM facts WHERE id % $p != $q GROUP BY k),"
    " b AS (SELECT k, max(s) AS m FROM a GROUP BY k) SELECT a.k, a.c, b.m, d.name FROM a JOIN b USING (k)"
    " LEFT JOIN dims d ON d.k = a.k",
    "WITH x AS (SELECT * FROM facts WHERE v > $n) SELECT l.g, count(*) AS c FROM x l JOIN x r ON l.id = r.id + $p"
    " GROUP BY l.g",
    "SELECT g, (SELECT max(w) FROM dims) AS top, count(*) AS c FROM facts GROUP BY g",
    "SELECT id, v FROM facts f WHERE v > (SELECT avg(v) + $n FROM facts x WHERE x.k = f.k)",
    "SELECT k, name FROM dims d WHERE EXISTS (SELECT 1 FROM events e WHERE e.k = d.k AND e.amount > $n)",
    "SELECT k, name FROM dims d WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.k = d.k AND e.kind = 'buy')",
    "SELECT id FROM facts WHERE k NOT IN (SELECT k FROM dims WHERE w > $p)",
    "SELECT kind, sum(amount) AS a FROM events WHERE k IN (SELECT k FROM facts WHERE v > $n) GROUP BY kind",
    "SELECT g, b, count(*) AS c, sum(v) AS s, grouping_id() AS i FROM facts GROUP BY GROUPING SETS ((g, b), (g), ())",
    "SELECT g, b, n, count(*) AS c, grouping(g) AS i FROM facts WHERE n < $p GROUP BY CUBE (g, b, n)",
    "SELECT year(t) AS y, month(t) AS m, sum(d) AS s FROM facts GROUP BY ROLLUP (year(t), month(t))",
    "SELECT * FROM (SELECT g, b, v FROM facts) PIVOT (sum(v) AS s, count(*) AS c FOR b IN (true, false))",
    "SELECT * FROM (SELECT kind, k % 4 AS q, amount FROM events) PIVOT (max(amount) FOR kind IN ('buy', 'view'))",
    "SELECT k, id, row_number() OVER (PARTITION BY k ORDER BY id DESC) AS r, sum(v) OVER (PARTITION BY k ORDER BY id"
    " ROWS BETWEEN $q PRECEDING AND CURRENT ROW) AS s FROM facts",
    "SELECT * FROM (SELECT *, rank() OVER (PARTITION BY kind ORDER BY amount DESC, eid) AS r FROM events)"
    " WHERE r <= $p",
    "SELECT k FROM facts WHERE v > $n INTERSECT SELECT k FROM events EXCEPT SELECT k FROM dims WHERE w < $p",
    "SELECT k FROM facts UNION SELECT k FROM events UNION ALL SELECT k FROM dims",
    "SELECT id, x FROM facts LATERAL VIEW explode(arr) e AS x WHERE x > $q",
    "SELECT lid, tag, pos FROM logs LATERAL VIEW OUTER posexplode(tags) e AS pos, tag",
    "SELECT props.host AS h, max(props.code) AS c, count_if(level = 'error') AS e FROM logs GROUP BY props.host",
    "SELECT f.id, l.lid FROM facts f FULL OUTER JOIN logs l ON f.id = l.lid * $p WHERE coalesce(f.id, 0) < 900",
    "SELECT /*+ BROADCAST(d) */ d.cat, sum(f.v) AS s FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.cat",
    "SELECT /*+ MERGE(d) */ d.cat, count(*) AS c FROM facts f RIGHT JOIN dims d ON f.k = d.k GROUP BY d.cat",
    "SELECT /*+ SHUFFLE_HASH(e) */ f.id, e.eid FROM facts f JOIN events e ON f.id = e.eid AND f.k < e.k + $p",
    "SELECT f.id, d.name FROM facts f JOIN dims d ON f.k BETWEEN d.k AND d.k + 1 WHERE f.id % $p = 1",
    "SELECT d.cat, x.c FROM dims d, LATERAL (SELECT count(*) AS c FROM events e WHERE e.k = d.k) x",
    "SELECT k, any_value(name) AS name, max(cat) AS cat FROM dims GROUP BY k HAVING max(w) > $p",
    "SELECT g, percentile(v, array(0.25, 0.5)) AS p, approx_count_distinct(k) AS a FROM facts GROUP BY g",
    "SELECT g, sort_array(collect_set(k % 9)) AS ks, map_from_arrays(array('a'), array(count(*))) AS m FROM facts"
    " GROUP BY g",
    "SELECT s, count(*) AS c FROM facts WHERE s IN ($strings) GROUP BY s",
    "SELECT id, CASE WHEN v > $n THEN 'a' WHEN v IS NULL THEN 'b' ELSE g END AS x FROM facts WHERE b OR n IS NULL",
    "SELECT transform(arr, x -> x + $p) AS a, filter(arr, x -> x % 2 = 0) AS f, id FROM facts WHERE size(arr) > 1",
    "SELECT id, inline_outer FROM (SELECT id, named_struct('x', id % $p, 'y', g) AS inline_outer FROM facts)",
    "SELECT k, try_divide(sum(v), count(n) - count(n)) AS z, try_cast(max(s) AS int) AS c FROM facts GROUP BY k",
    "SELECT g, max_by(id, struct(v, id)) AS x, min_by(s, struct(d, id)) AS y FROM facts GROUP BY g",
    "SELECT kind, k, amount FROM events DISTRIBUTE BY kind SORT BY amount",
    "SELECT day, kind, count(*) AS c FROM events GROUP BY ALL",
    "VALUES (1, 'a'), (2, 'b'), ($p, 'c')",
    "SELECT * FROM range($n + 6000, 12000, $p) WHERE id % 13 = 0",
    "SELECT stack(2, k, name, w, cat) FROM dims",
    "FROM facts |> WHERE v > $n |> AGGREGATE count(*) AS c, max(v) AS m GROUP BY g |> WHERE c > 1",
    "SELECT f.g, d.cat, count(DISTINCT f.k) AS a, count(DISTINCT f.n) AS b, sum(DISTINCT f.v) AS c FROM facts f"
    " JOIN dims d USING (k) GROUP BY f.g, d.cat",
    "SELECT a.k, b.k AS l FROM dims a CROSS JOIN dims b WHERE a.w = b.w AND a.k % $p = 0",
    "SELECT window(ts, '90 days').start AS w, count(*) AS c FROM facts GROUP BY window(ts, '90 days')",
)
ORDERED = (
    "SELECT g, count(*) AS c FROM facts GROUP BY g ORDER BY c DESC, g LIMIT $q",
    "SELECT id, s, v FROM facts ORDER BY s, v DESC, id LIMIT 60 OFFSET $p",
    "SELECT k, sum(amount) AS a FROM events GROUP BY k ORDER BY a DESC NULLS LAST, k",
    "SELECT d.cat, f.g, sum(f.v) AS s FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.cat, f.g ORDER BY d.cat, f.g",
    "SELECT * FROM (SELECT k, v, id FROM facts ORDER BY v, id LIMIT 500) ORDER BY id DESC LIMIT $q",
    "SELECT id, t FROM facts WHERE g = 'g$q' ORDER BY t, id",
)


def _values(random: Random) -> dict[str, Any]:
    strings = ", ".join(f"'Customer#{random.randrange(300):09}'" for _ in range(random.choice([3, 14, 30])))
    return {
        "p": random.randrange(2, 30),
        "q": random.randrange(1, 8),
        "n": random.randrange(-500, 500),
        "strings": strings,
    }


def query(random: Random) -> Case:
    text = random.choice(QUERIES)
    action = random.choice(
        [
            'r.frame("rows", q)',
            'r.frame("rows", q)\nr.value("count", q.count())',
            'q.write.mode("overwrite").parquet(f"{out}/q")\nr.written("q", f"{out}/q")',
            'r.rows("pandas", [tuple(x) for x in q.toPandas().astype(str).itertuples(index=False)])',
            'q.createOrReplaceTempView("q")\nr.rows("from view", spark.sql("SELECT count(*) FROM q").collect())',
            'r.rows("arrow", q.toArrow().to_pylist())',
            'r.rows("cached", q.cache().collect())\nr.value("again", q.count())',
        ]
    )
    return case("sql", f'q = spark.sql("""{text}""")\n{action}', **_values(random))


def ordered(random: Random) -> Case:
    text = random.choice(ORDERED)
    action = random.choice(
        [
            'r.frame("rows", q, ordered=True)',
            'r.shown("show", lambda: q.show(30, False))',
            'q.write.mode("overwrite").json(f"{out}/q")\nr.written("q", f"{out}/q", ordered=True)',
            'r.rows("take", q.take(4), ordered=True)\nr.rows("all", q.collect(), ordered=True)',
            'r.rows("udf above", q.withColumn("u", F.udf(lambda x: str(x), "string")(F.col(q.columns[0]))).collect(),'
            " ordered=True)",
            'r.rows("iterator", list(q.toLocalIterator(prefetchPartitions=True)), ordered=True)',
        ]
    )
    return case("sql_ordered", f'q = spark.sql("""{text}""")\n{action}', **_values(random))


def near(random: Random) -> Case:
    """Two queries that differ in one literal, one after another."""
    shape = random.choice(
        [
            "SELECT s, count(*) AS c FROM facts WHERE s IN ({0}) GROUP BY s",
            "SELECT g, array({0}) AS a, count(*) AS c FROM facts GROUP BY g",
            "SELECT k, count(*) AS c FROM facts WHERE s NOT IN ({0}) AND k < 9 GROUP BY k",
        ]
    )
    strings = [f"'Customer#{random.randrange(300):09}'" for _ in range(13)]
    other = list(strings)
    other[random.randrange(13)] = f"'Customer#{random.randrange(300):09}'"
    one, two = shape.format(", ".join(strings)), shape.format(", ".join(other))
    if "array" in shape and random.random() < 0.5:
        one, two = shape.format("'1', '2'"), shape.format("'1,2'")
    return case("sql_near", f'r.frame("one", spark.sql("""{one}"""))\nr.frame("two", spark.sql("""{two}"""))')


FAMILIES = {"sql": query, "sql_ordered": ordered, "sql_near": near}
