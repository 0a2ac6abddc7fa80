"""Named changes between two attempts, each with the vertices that have to be computed again: all others are reused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NONE: tuple[str, ...] = ()
TOTALS = ("totals",)
JOINED = ("joined", *TOTALS)
SCORED = ("scored", *JOINED)
ALL = ("clean", *SCORED)


@dataclass(frozen=True)
class Mutation:
    """One change.

    :ivar computed: names of the vertices that must be computed again
    :ivar because: what the explanation of the first of them must say (a regular expression)
    :ivar edits: (file, old text, new text); the old text must be there
    :ivar data: changes the input folder
    :ivar settings: of the session, for the second attempt only
    """

    name: str
    computed: tuple[str, ...]
    because: str = ""
    edits: tuple[tuple[str, str, str], ...] = ()
    data: Callable[[Path], None] | None = None
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def changes_modules(self) -> bool:
        """Whether workers have to import modules anew."""
        return any(name != "pipeline.py" for name, _, _ in self.edits)

    def mutate(self, scripts: Path) -> None:
        for name, old, new in self.edits:
            path = scripts / name
            text = path.read_text()
            assert old in text, f"{self.name}: {old!r} is not in {name}"
            path.write_text(text.replace(old, new))


def edit(
    name: str, computed: tuple[str, ...], old: str, new: str, because: str = "", file: str = "pipeline.py"
) -> Mutation:
    return Mutation(name, computed, because, edits=((file, old, new),))


def setting(name: str, computed: tuple[str, ...], key: str, value: str, because: str = "") -> Mutation:
    return Mutation(name, computed, because or (re.escape(key) if computed else ""), settings={key: value})


def write_inputs(folder: Path) -> None:
    """400 orders in two files, 20 customers in one."""
    for part in range(2):
        _orders(folder / f"orders/part-{part}.parquet", part * 200)
    rows = range(20)
    _write(folder / "customers/part-0.parquet", {"customer": [*rows], "segment": [row % 2 for row in rows]})


def _orders(path: Path, first: int, step: int = 1) -> None:
    rows = range(first, first + 200)
    _write(
        path,
        {
            "customer": [row % 20 for row in rows],
            "amount": [row * 7 * step % 100 for row in rows],
            "day": [row % 7 for row in rows],
        },
    )


def _write(path: Path, columns: dict[str, list[int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without dictionaries and compression, so that other values make a file of the same size.
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False, write_statistics=False)


def _changed_in_place(folder: Path) -> None:
    path = folder / "orders/part-1.parquet"
    before = path.stat()
    _orders(path, 200, step=3)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 2_000_000))


def _touched(folder: Path) -> None:
    path = folder / "orders/part-1.parquet"
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 2_000_000))


def _customer_added(folder: Path) -> None:
    _write(folder / "customers/part-1.parquet", {"customer": [3], "segment": [1]})


CODE_THAT_MEANS_THE_SAME = [
    Mutation("nothing", NONE),
    edit("a comment", NONE, "spark = Spark", "# the session\nspark = Spark"),
    edit("everything three lines further down", NONE, "import sys\n", "import sys\n\n\n\n"),
    edit(
        "another docstring of a function", NONE, '"""Score an order."""', '"""Score one order,\n    by its amount."""'
    ),
    edit("a function without its docstring", NONE, '    """Score an order."""\n', ""),
    edit("a local variable of a function renamed", NONE, "weight", "w"),
    edit(
        "a function without annotations",
        NONE,
        "(amount: int, day: int, bonus: int = 1) -> int",
        "(amount, day, bonus=1)",
    ),
    edit(
        "a function renamed",
        NONE,
        "score_udf = F.udf(score,",
        "grade = score\ngrade.__name__ = 'grade'\nscore_udf = F.udf(grade,",
    ),
    edit("a variable of the driver renamed", NONE, "score_udf", "my_udf"),
    edit("other white space in a function", NONE, "amount * weight + day", "(amount*weight) + day"),
    edit("a set written in another order", NONE, "{5, 6}", "{6, 5}"),
    edit("other parentheses", NONE, 'F.col("amount") < LIMIT', '(F.col("amount")) < (LIMIT)'),
    edit("a constant given by its value", NONE, "< LIMIT", "< 90"),
    edit("an import that nothing uses", NONE, "import sys\n", "import sys\nimport json\n"),
    edit("a function that nothing uses", NONE, "def scaled", "def unused():\n    return 1\n\n\ndef scaled"),
    edit("a line printed by the driver", NONE, "RESULT =", "print('done')\nRESULT ="),
    edit("another application name", NONE, "SparkSession.builder.", "SparkSession.builder.appName('other')."),
    edit("a comment in a module", NONE, "RATE = 0.5", "# the rate\n\nRATE = 0.5", file="rates.py"),
    edit("another docstring in a module", NONE, '"""Price of an order."""', '"""What it costs."""', file="pricing.py"),
    edit("a recovery point less", NONE, 'totals = checkpoint(totals, "totals")', ""),
    edit(
        "a recovery point more at the end",
        ("more",),
        "RESULT =",
        'more = checkpoint(totals.limit(1), "more")\nRESULT =',
    ),
    edit("something else done with the last one", NONE, "RESULT =", "totals.count()\nRESULT ="),
]

CODE_THAT_MEANS_SOMETHING_ELSE = [
    edit("a literal", ALL, "LIMIT = 90", "LIMIT = 89", "plan changed"),
    edit("a literal's type", ALL, 'F.lit("web")', "F.lit(1)", "column 'kind' was string, is integer"),
    edit("a literal's case", ALL, 'F.lit("web")', 'F.lit("Web")', "plan changed"),
    edit("an operator", ALL, '"amount") < LIMIT', '"amount") <= LIMIT', "plan changed"),
    edit("a column's name", ALL, '"kind"', '"sort"', "column 'sort' is new; column 'kind' is gone"),
    edit(
        "a column more",
        SCORED,
        "scored = checkpoint(",
        'scored = scored.withColumn("one", F.lit(1))\nscored = checkpoint(',
        "column 'one' is new",
    ),
    edit(
        "a column less",
        JOINED,
        "joined = checkpoint(",
        'joined = joined.drop("label")\njoined = checkpoint(',
        "column 'label' is gone",
    ),
    edit(
        "the order of columns",
        JOINED,
        "joined = checkpoint(",
        "joined = joined.select(*sorted(joined.columns))\njoined = checkpoint(",
        "order of its columns",
    ),
    edit("the kind of a join", JOINED, 'customers, "customer")', 'customers, "customer", "left")', "plan changed"),
    edit(
        "the key of a join",
        JOINED,
        'customers, "customer")',
        'customers.withColumnRenamed("customer", "c"), F.col("day") == F.col("c"))',
        "plan",
    ),
    edit(
        "a filter on one side of a join",
        JOINED,
        "scored.join(customers",
        'scored.join(customers.where("segment = 1")',
        "plan changed",
    ),
    edit("an aggregate", TOTALS, 'F.sum("score")', 'F.max("score")', "plan changed"),
    edit("a grouping", TOTALS, 'groupBy("region")', 'groupBy("region", "kind")', "column 'kind' is new"),
    edit(
        "a sort",
        TOTALS,
        "totals = checkpoint(",
        'totals = totals.orderBy("score")\ntotals = checkpoint(',
        "plan changed",
    ),
    edit(
        "a distinct", JOINED, "joined = checkpoint(", "joined = joined.distinct()\njoined = checkpoint(", "plan changed"
    ),
    edit(
        "a union with itself",
        ALL,
        "clean = checkpoint(",
        "clean = clean.union(clean)\nclean = checkpoint(",
        "plan changed",
    ),
    edit("a constant in a function", SCORED, "weight = 3", "weight = 4", "function 'score' changed"),
    edit("an operator in a function", SCORED, "+ day + bonus", "- day + bonus", "function 'score' changed"),
    edit("a global that a function reads", SCORED, "OFFSET = 7", "OFFSET = 8", "function 'score' changed"),
    edit("a default argument", SCORED, "bonus: int = 1", "bonus: int = 2", "function 'score' changed"),
    edit(
        "a keyword-only default",
        SCORED,
        "day: int, bonus: int = 1",
        "day: int, *, bonus: int = 2",
        "function 'score' changed",
    ),
    edit("the order of arguments", SCORED, 'score_udf("amount", "day")', 'score_udf("day", "amount")', "plan changed"),
    edit(
        "a return type", SCORED, 'F.udf(score, "long")', 'F.udf(score, "string")', "column 'score' was long, is string"
    ),
    edit("a value in a closure", SCORED, "scaled(2)", "scaled(3)", "function '<lambda>"),
    edit("a function within a function", SCORED, "x * factor", "x + factor", "function '<lambda>"),
    edit("an argument's name", SCORED, "lambda day: day in WEEKEND", "lambda d: d in WEEKEND", "function '<lambda>"),
    edit("a set that a function reads", SCORED, "{5, 6}", "{5, 0}", "function '<lambda>"),
    edit("a broadcast variable", SCORED, '1: "old"', '1: "older"', "function '<lambda>"),
    edit("a class attribute", SCORED, 'prefix = "d"', 'prefix = "e"', "function 'Label' changed"),
    edit("a method", SCORED, 'f"{self.prefix}{day}"', 'f"{self.prefix}-{day}"', "function 'Label' changed"),
    edit("a pandas function", JOINED, "pricing.price(amount) -", "pricing.price(amount) +", "function 'price' changed"),
    edit("a module", JOINED, "* RATE +", "* RATE -", "module 'pricing' changed", file="pricing.py"),
    edit(
        "a module that a module imports", JOINED, "RATE = 0.5", "RATE = 0.75", "module 'rates' changed", file="rates.py"
    ),
    edit("a class in a module", JOINED, "base = 2", "base = 3", "module 'rates' changed", file="rates.py"),
    edit(
        "a module imported in a function",
        JOINED,
        "* 0.25",
        "* 0.125",
        "module 'discounts' changed",
        file="discounts.py",
    ),
    edit(
        "rows given to createDataFrame", TOTALS, '(1, "south")', '(1, "SOUTH")', "rows given to createDataFrame changed"
    ),
    edit(
        "a row more given to createDataFrame",
        TOTALS,
        '(1, "south")',
        '(1, "south"), (0, "polar")',
        "rows given to createDataFrame",
    ),
    edit(
        "not deterministic by its own word",
        SCORED,
        'F.udf(score, "long")',
        'F.udf(score, "long").asNondeterministic()',
        "plan changed",
    ),
    edit(
        "the upstream only",
        SCORED,
        'checkpoint(scored, "scored")',
        'checkpoint(scored.where("day > 1"), "scored")',
        "plan changed",
    ),
    edit("a name", ("tidy",), 'checkpoint(clean, "clean")', 'checkpoint(clean, "tidy")'),
]

INPUTS = [
    Mutation(
        "an input file more",
        ALL,
        "1 input file is new",
        data=lambda folder: _orders(folder / "orders/part-2.parquet", 400),
    ),
    Mutation(
        "an input file less",
        ALL,
        "1 input file is gone",
        data=lambda folder: (folder / "orders/part-1.parquet").unlink(),
    ),
    Mutation("an input file changed, its size the same", ALL, "1 input file is changed", data=_changed_in_place),
    Mutation("an input file written again as it was", ALL, "1 input file is changed", data=_touched),
    Mutation(
        "an input file renamed",
        ALL,
        "is new, 1 input file is gone",
        data=lambda folder: (folder / "orders/part-1.parquet").rename(folder / "orders/part-9.parquet"),
    ),
    Mutation("a file more on the small side of the join", JOINED, "1 input file is new", data=_customer_added),
    Mutation("a file elsewhere", NONE, data=lambda folder: _orders(folder / "returns/part-0.parquet", 0)),
    Mutation("a file that Spark does not read", NONE, data=lambda folder: (folder / "orders/_SUCCESS").write_text("")),
    edit(
        "the columns that are read",
        ALL,
        'spark.read.parquet(f"{DATA}/orders")',
        'spark.read.schema("customer long, amount long, day long, x int").parquet(f"{DATA}/orders")',
        "column 'x' is new",
    ),
    edit(
        "an option of the reader",
        ALL,
        'spark.read.parquet(f"{DATA}/orders")',
        'spark.read.option("ignoreCorruptFiles", "true").parquet(f"{DATA}/orders")',
        "how the files under .* are read",
    ),
]

SETTINGS = [
    setting("the time zone", ALL, "spark.sql.session.timeZone", "Asia/Tokyo", "timeZone was .*, is Asia/Tokyo"),
    setting("ANSI mode", ALL, "spark.sql.ansi.enabled", "false", "spark.sql.ansi.enabled was not set, is false"),
    Mutation(
        "ANSI mode only while a plan is made",
        ALL,
        "order in which settings were made",
        edits=(
            ("pipeline.py", "clean = orders", 'spark.sql("SET spark.sql.ansi.enabled=false")\nclean = orders'),
            (
                "pipeline.py",
                "clean = checkpoint",
                'spark.conf.set("spark.sql.ansi.enabled", "true")\nclean = checkpoint',
            ),
        ),
    ),
    setting("case sensitivity", ALL, "spark.sql.caseSensitive", "true"),
    setting("a legacy flag", ALL, "spark.sql.legacy.timeParserPolicy", "LEGACY"),
    setting("a policy", ALL, "spark.sql.mapKeyDedupPolicy", "LAST_WIN"),
    setting("rows in an Arrow batch", ALL, "spark.sql.execution.arrow.maxRecordsPerBatch", "7"),
    setting("a setting that Spark does not know", ALL, "spark.sql.my.flag", "1"),
    setting("a setting set to its default", NONE, "spark.sql.mapKeyDedupPolicy", "EXCEPTION"),
    setting("more shuffle partitions", NONE, "spark.sql.shuffle.partitions", "8"),
    setting("no adaptive execution", NONE, "spark.sql.adaptive.enabled", "false"),
    setting("no broadcast joins", NONE, "spark.sql.autoBroadcastJoinThreshold", "-1"),
    setting("smaller scan partitions", NONE, "spark.sql.files.maxPartitionBytes", "1024"),
    setting("a setting that is only shown", NONE, "spark.sql.debug.maxToStringFields", "3"),
    setting("a setting outside of SQL", NONE, "spark.my.flag", "1"),
]

MUTATIONS = [*CODE_THAT_MEANS_THE_SAME, *CODE_THAT_MEANS_SOMETHING_ELSE, *INPUTS, *SETTINGS]
