"""Queries that differ in one thing, by the thousand: no two of them may share an identity.

A hunt goes through the documented examples of every function that Spark has and changes one literal of each at a time;
and through queries over a table that are put together from parts, and changes one part at a time.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.identity.fingerprint import exchange_fingerprint
from airflow_provider.spark.identity.plan_identity import PlanDescription, read_plan
from airflow_provider.spark.jvm.scala import items
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from tests.spark.identity.learnt import Learnt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LITERAL = re.compile(r"'(?:[^'\\]|\\.|'')*'|(?<![\w.])\d+(?:\.\d+)?(?![\w.])|\b(?:true|false)\b", re.IGNORECASE)
UNFOLDED = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("ConstantFolding", "ConvertToLocalRelation", "NullPropagation", "FoldablePropagation")
)


@dataclass
class Haul:
    """What a hunt came back with.

    :ivar pairs: pairs of queries that were compared
    :ivar examined: queries with an identity
    :ivar opaque: queries without
    :ivar functions: functions of Spark's registry that stood in a pair
    :ivar synonyms: pairs with one identity whose rows are equal, as they are after optimizing
    :ivar collisions: pairs with one identity whose rows are not
    """

    pairs: int = 0
    examined: int = 0
    opaque: int = 0
    functions: set[str] = field(default_factory=set)
    synonyms: list[tuple[str, str]] = field(default_factory=list)
    collisions: list[tuple[str, str]] = field(default_factory=list)


def documented_queries(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """Every example query in the documentation of Spark's own functions, with the function's name."""
    registry = spark._jsparkSession.sessionState().functionRegistry()
    for function in items(registry.listFunction()):
        info = registry.lookupFunction(function)
        if not info.isEmpty():
            for match in re.finditer(r"> (SELECT .*?);\n", info.get().getExamples(), re.DOTALL):
                yield str(info.get().getName()), match[1].replace("_FUNC_", info.get().getName())


def variants(query: str) -> Iterator[list[str]]:
    """Yield, for each literal of a query, the query and others in which only that literal differs."""
    for match in LITERAL.finditer(query):
        others = [query[: match.start()] + text + query[match.end() :] for text in _other_literals(match[0])]
        yield list(dict.fromkeys([query, *others]))


def _other_literals(literal: str) -> list[str]:
    if literal.startswith("'"):
        inner = literal[1:-1]
        return [f"'{inner}x'", f"'#1{inner}'", f"'{inner[1:]}'", f"'{inner},'"]
    if literal.lower() in ("true", "false"):
        return ["false" if literal.lower() == "true" else "true", "cast(null as boolean)"]
    if "." in literal:
        return [f"{literal}1", f"{literal}0", f"1{literal}"]
    return [str(int(literal) + 1), str(int(literal) * 10 + 3), f"{literal}L", f"{literal}.0"]


@dataclass(frozen=True)
class Seen:
    """One query that has an identity."""

    text: str
    identity: object
    df: DataFrame


class Hunter:
    """Looks at queries of one session, logical plans or what feeds their shuffles."""

    def __init__(self, spark: SparkSession, *, physical: bool) -> None:
        self._spark = spark
        self._physical = physical
        self._learnt = Learnt()
        self.haul = Haul()

    def group(self, texts: list[str], function: str = "") -> None:
        """Compare queries each of which differs from each other."""
        seen = [one for text in texts if (one := self._look(text)) is not None]
        for one, other in itertools.combinations(seen, 2):
            self.haul.pairs += 1
            if function:
                self.haul.functions.add(function)
            if one.identity == other.identity:
                same = rows(one.df) == rows(other.df)
                (self.haul.synonyms if same else self.haul.collisions).append((one.text, other.text))

    def _look(self, text: str) -> Seen | None:
        try:
            df = self._spark.sql(text)
            plan = df._jdf.queryExecution().executedPlan() if self._physical else None
        except Exception:  # noqa: BLE001 - it means nothing with such a literal, or is more than Spark can bear
            return None
        described = self._exchange(plan) if self._physical else self._logical(df)
        if described is None:
            self.haul.opaque += 1
            return None
        self.haul.examined += 1
        return Seen(text, described, df)

    def _logical(self, df: DataFrame) -> object:
        found = read_plan(self._spark, self._learnt, df._jdf.queryExecution().analyzed())
        return None if found.opaque else (identity(found), df.schema.json())

    def _exchange(self, plan: Any) -> object:
        exchange = next(exchanges(plan), None)
        if exchange is None:
            return None
        found = exchange_fingerprint(self._spark, self._learnt, exchange, QuerySettings(all_settings(self._spark)))
        return None if found.opaque else found.digest


def identity(described: PlanDescription) -> tuple[str, ...]:
    return (
        described.plan,
        *(source.identity for source in described.sources),
        *(function.identity.digest for function in described.functions),
    )


def rows(df: DataFrame) -> object:
    """What a query gives, or how it fails."""
    try:
        return sorted(str((*row,)) for row in df.collect())
    except Exception as error:  # noqa: BLE001 - the kind of failure is its result
        return type(error).__name__


def exchanges(plan: Any) -> Iterator[Any]:
    """Yield the shuffles of a plan, subqueries included, those that run last first."""
    name = plan.getClass().getSimpleName()
    if name == "AdaptiveSparkPlanExec":
        yield from exchanges(plan.initialPlan())
        return
    if name == "ShuffleExchangeExec":
        yield plan
    for below in (*items(plan.children()), *items(plan.subqueries())):
        yield from exchanges(below)


@contextmanager
def unfolded(spark: SparkSession) -> Iterator[None]:
    """Let the optimizer leave expressions of literals as they are."""
    spark.conf.set("spark.sql.optimizer.excludedRules", UNFOLDED)
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.optimizer.excludedRules")


def hunt_functions(spark: SparkSession, seed: int, share: float, *, physical: bool) -> Haul:
    """Change each literal of the documented examples.

    :param share: how many of the examples, from 0 to 1
    """
    chance = random.Random(seed)
    hunter = Hunter(spark, physical=physical)
    with unfolded(spark):
        for function, query in {q: (f, q) for f, q in documented_queries(spark)}.values():
            if chance.random() > share or (physical and re.search(r"\bFROM\b", query, re.IGNORECASE)):
                continue
            for group in variants(query):
                spread = [f"SELECT *, id FROM ({one}), range(0, 3, 1, 1) DISTRIBUTE BY id" for one in group]
                hunter.group(spread if physical else group, function)
    return hunter.haul


PARTS: dict[str, list[str]] = {
    "value": [
        "k", "v", "k + 1", "k + 1L", "k + 2", "cast(k AS string)", "cast(k AS double)", "cast(k AS decimal(9, 2))",
        "cast(k AS decimal(9, 3))", "try_cast(s AS int)", "cast(s AS int)", "concat(s, '#1')", "concat(s, '#2')",
        "array('1', '2')[0]", "array('1,2')[0]", "map('a', k)['a']", "map('b', k)['a']", "if(k > 3, v, 0)",
        "if(k >= 3, v, 0)", "named_struct('a', k).a", "s LIKE '%1'", "s RLIKE '1'", "date_add(DATE'2024-01-01', k)",
        "from_utc_timestamp(t, 'UTC')", "from_utc_timestamp(t, 'Europe/Berlin')", "hour(t)", "minute(t)",
        "transform(array(k), x -> x + 1)", "transform(array(k), x -> x + 2)", "size(split(s, ','))", "nullif(k, 3)",
        "nvl(v, 0)", "coalesce(v, 1)", "try_add(k, 1)", "try_divide(k, 3)", "k / 3", "k div 3", "k % 3", "pmod(k, 3)",
    ],
    "aggregate": [
        "sum({0})", "count({0})", "count(DISTINCT {0})", "max({0})", "min({0})", "avg({0})", "try_sum({0})",
        "sum({0}) FILTER (WHERE k > 1)", "sum({0}) FILTER (WHERE k > 2)", "max_by({0}, v)", "stddev_samp({0})",
        "stddev_pop({0})", "percentile({0}, 0.5)", "percentile({0}, 0.6)", "approx_count_distinct({0})",
        "approx_count_distinct({0}, 0.1)", "bool_and({0} IS NULL)", "bool_or({0} IS NULL)", "collect_list({0})",
    ],
    "where": [
        "k > 1", "k > 2", "k >= 2", "k IN (1, 2)", "k IN (1, 3)", "k IN (1,2,3,4,5,6,7,8,9,10,11,12)",
        "k IN (1,2,3,4,5,6,7,8,9,10,11,13)", "k NOT IN (1, 2)", "s = 'C#1'", "s = 'C#2'", "s IS NULL", "s <=> 'a'",
        "s IN ('C#00','C#01','C#02','C#03','C#04','C#05','C#06','C#07','C#08','C#09','C#10')",
        "s IN ('C#00','C#01','C#02','C#03','C#04','C#05','C#06','C#07','C#08','C#09','C#11')",
        "k > (SELECT min(k) FROM other)", "k > (SELECT max(k) FROM other)", "k IN (SELECT k FROM other)",
        "EXISTS (SELECT 1 FROM other WHERE other.k = facts.k)", "true",
    ],
    "join": [
        "", "JOIN other USING (k)", "LEFT JOIN other USING (k)", "RIGHT JOIN other USING (k)",
        "FULL JOIN other USING (k)", "LEFT SEMI JOIN other USING (k)", "LEFT ANTI JOIN other USING (k)",
        "CROSS JOIN (SELECT count(1) AS c FROM other)", "JOIN (SELECT DISTINCT k FROM other) USING (k)",
    ],
    "group": ["k", "k % 2", "s", "k, s", "ROLLUP (k, s)", "CUBE (k, s)", "GROUPING SETS ((k), (s))"],
    "hint": ["", "/*+ MERGE(other) */", "/*+ SHUFFLE_HASH(other) */", "/*+ BROADCAST(other) */"],
}  # fmt: skip
QUERY = "SELECT {hint} {aggregate} AS x FROM facts {join} WHERE {where} GROUP BY {group}"


def hunt_queries(spark: SparkSession, seed: int, groups: int, *, physical: bool) -> Haul:
    """Change one part of queries over a table."""
    chance = random.Random(seed)
    hunter = Hunter(spark, physical=physical)
    for _ in range(groups):
        chosen = {name: chance.choice(part) for name, part in PARTS.items()}
        name = chance.choice([*PARTS])
        few = chance.sample(PARTS[name], min(6, len(PARTS[name])))
        queries = [_query({**chosen, name: part}) for part in few]
        hunter.group([f"SELECT * FROM ({one}) DISTRIBUTE BY x" for one in queries] if physical else queries)
    return hunter.haul


SEVERAL = [
    "max(s)", "min(s)", "max(concat(s, 'x'))", "min(concat(s, 'x'))", "first(s)", "max_by(s, v)", "max(struct(s, k))",
    "min(struct(k, s))", "count(DISTINCT s)", "max(s) FILTER (WHERE v > 2)", "max(s) FILTER (WHERE v > 3)", "max(k)",
    "count(1)",
]  # fmt: skip
"""Aggregates, most of which sort: what Spark names their results is in their canonical form."""
CHOSEN = [
    "{0} AS x, {1} AS y, {2} AS z", "{0} AS x", "{0} AS x, {1} AS y, {0} AS z", "{0} AS x, {1} AS y, {1} AS z",
    "{0} AS x, {1} AS y, string({0}) || string({1}) AS z", "{0} AS x, {1} AS y, string({1}) || string({0}) AS z",
    "string({0}) || string({1}) AS x, {2} AS y", "string({0}) || string({1}) AS x, {0} AS y, {1} AS z",
]  # fmt: skip


def hunt_orders(spark: SparkSession, seed: int, groups: int, *, physical: bool) -> Haul:
    """Ask for several aggregates in each order, for some of them more than once."""
    chance = random.Random(seed)
    hunter = Hunter(spark, physical=physical)
    for _ in range(groups):
        group = chance.choice(["k", "k % 2", "s"])
        orders = itertools.permutations(chance.sample(SEVERAL, 3))
        columns = [chosen.format(*order) for order in orders for chosen in CHOSEN]
        queries = [f"SELECT {each} FROM facts GROUP BY {group}" for each in chance.sample(columns, 30)]
        hunter.group([f"SELECT * FROM ({one}) DISTRIBUTE BY x" for one in queries] if physical else queries)
    return hunter.haul


def _query(chosen: dict[str, str]) -> str:
    value = {"k": "facts.k"}.get(chosen["value"], chosen["value"])
    return QUERY.format(**{**chosen, "aggregate": chosen["aggregate"].format(value)})


def tables(spark: SparkSession, folder: str) -> None:
    """Make the two tables that the queries read."""
    spark.range(0, 60, 1, 2).selectExpr(
        "int(id % 14) AS k",
        "id * 3 % 11 AS v",
        "concat('C#0', id % 20) AS s",
        "timestamp_seconds(id * 1000) AS t",
    ).write.mode("overwrite").parquet(f"{folder}/facts")
    spark.range(0, 9, 1, 1).selectExpr("int(id) AS k").write.mode("overwrite").parquet(f"{folder}/other")
    for name in ("facts", "other"):
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
