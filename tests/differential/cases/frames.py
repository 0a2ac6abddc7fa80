"""A random DataFrame program: sources and transformations, as text, with what is known of the columns.

Each step keeps the rows' multiset defined: where Spark is free to choose (which row of a tie comes first), the order of
a window or a limit is by all columns. What does not matter to that (repartitioning, hints, caches) is strewn in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

SOURCES: dict[str, dict[str, str]] = {
    "facts": {
        "id": "int", "k": "int", "g": "str", "v": "int", "d": "dec", "t": "date", "ts": "ts", "s": "str", "b": "bool",
        "n": "int", "arr": "arr", "st": "struct", "m": "map",
    },
    "dims": {"k": "int", "name": "str", "cat": "str", "w": "int"},
    "events": {"eid": "int", "k": "int", "kind": "str", "amount": "dec", "day": "date"},
    "logs": {"lid": "int", "level": "str", "tags": "sarr", "k": "int"},
}  # fmt: skip
ORDERED_TYPES = {"int", "str", "dec", "date", "ts", "bool"}
HINTS = ("broadcast", "merge", "shuffle_hash", "shuffle_replicate_nl")


@dataclass
class Frame:
    """A variable of the script and its columns."""

    name: str
    columns: dict[str, str]
    small: bool = False

    def of(self, *types: str) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in types]

    def orderable(self) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in ORDERED_TYPES]

    def flat(self) -> bool:
        """Whether sorting by all orderable columns is a total order of the rows."""
        return len(self.orderable()) == len(self.columns)


@dataclass
class Program:
    """Lines of a case that is being made."""

    random: Random
    lines: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, line: str) -> None:
        self.lines.append(line)

    def text(self) -> str:
        return "\n".join([*self.lines, *self.last]) + "\n"

    def new(self, expression: str, columns: dict[str, str], small: bool = False) -> Frame:
        self.count += 1
        frame = Frame(f"f{self.count}", columns, small)
        self.add(f"{frame.name} = {expression}")
        return frame

    def source(self, name: str = "") -> Frame:
        """A table, read in one of the ways to do so."""
        name = name or self.random.choices(list(SOURCES), [5, 1, 2, 1])[0]
        columns = dict(SOURCES[name])
        if name in ("facts", "dims") and self.random.random() < 0.5:
            return self.new(f'spark.read.parquet(f"{{data}}/{name}")', columns, name == "dims")
        if name == "logs":
            return self.new('spark.table("logs").select("lid", "level", "tags", "k")', columns)
        return self.new(f'spark.table("{name}")', columns, name == "dims")

    def small(self, column: str = "k") -> Frame:
        """A frame of at most one row each *k*."""
        if self.random.random() < 0.5:
            return self.source("dims")
        frame = self.source(self.random.choice(["facts", "events"]))
        number = frame.of("int")[0]
        grouped = f'{frame.name}.groupBy("k").agg(F.max("{number}").alias("top"), F.count("*").alias("many"))'
        return self.new(grouped, {"k": "int", "top": "int", "many": "int"}, True)

    def flat(self, frame: Frame) -> Frame:
        """The frame without columns that cannot be sorted by."""
        if frame.flat():
            return frame
        names = ", ".join(f'"{name}"' for name in frame.orderable())
        return self.new(f"{frame.name}.select({names})", {name: frame.columns[name] for name in frame.orderable()})

    def total_order(self, frame: Frame) -> str:
        """Arguments that sort by all columns."""
        names = frame.orderable()
        self.random.shuffle(names)
        direction = self.random.choice(["", "", ".desc()", ".asc_nulls_last()", ".desc_nulls_first()"])
        return ", ".join([f'F.col("{names[0]}"){direction}', *(f'"{name}"' for name in names[1:])])


def predicate(random: Random, frame: Frame) -> str:
    """A condition on a column, as a DataFrame expression or as SQL text."""
    name = random.choice(frame.orderable())
    kind = frame.columns[name]
    if kind == "int":
        number = random.randrange(2, 9)
        return random.choice(
            [
                f'F.col("{name}") % {number} != {random.randrange(number)}',
                f'"{name} >= {random.randrange(-200, 40)}"',
                f'F.col("{name}").isin({", ".join(str(random.randrange(200)) for _ in range(14))}, 7, 7)',
                f'F.col("{name}").between({random.randrange(10)}, {random.randrange(20, 900)})',
                f'F.col("{name}").isNotNull()',
            ]
        )
    if kind == "str":
        return random.choice(
            [
                f'F.col("{name}").isNotNull()',
                f'F.length("{name}") > {random.randrange(6)}',
                f'F.substring("{name}", -1, 1) != "{random.randrange(10)}"',
                f"\"{name} <=> null or {name} < 'm'\"",
                f'F.col("{name}").rlike("[{random.randrange(4)}-9ace]")',
            ]
        )
    other = {
        "dec": f'F.col("{name}") > {random.randrange(20, 5000)}.25',
        "date": f'F.col("{name}") > F.lit(dt.date({random.choice([2020, 2021])}, {random.randrange(1, 13)}, 3))',
        "ts": f'F.hour("{name}") < {random.randrange(8, 22)}',
        "bool": f'F.col("{name}")',
    }
    return other[kind]


def computed(random: Random, frame: Frame) -> tuple[str, str]:
    """A new column's expression and type."""
    choices = []
    for name in frame.of("int"):
        choices += [
            (f'(F.col("{name}") * {random.randrange(2, 9)} + {random.randrange(50)}) % 1000', "int"),
            (f'F.coalesce("{name}", F.lit({random.randrange(-9, 0)}))', "int"),
            (f'F.when(F.col("{name}") > {random.randrange(99)}, "many").otherwise("few")', "str"),
            (f"F.expr(\"cast({name} as string) || '#{random.randrange(99)}'\")", "str"),
            (f'F.pmod(F.hash("{name}"), F.lit({random.randrange(5, 40)}))', "int"),
        ]
    for name in frame.of("str"):
        choices += [
            (f'F.upper("{name}")', "str"),
            (f'F.concat_ws("-", "{name}", F.lit("x{random.randrange(9)}"))', "str"),
            (f'F.length("{name}")', "int"),
            (f'F.sha2("{name}", 256).substr(1, {random.randrange(1, 5)})', "str"),
            (f'F.regexp_extract("{name}", "([0-9]+)", 1)', "str"),
        ]
    for name in frame.of("date"):
        choices += [(f'F.year("{name}") * 100 + F.month("{name}")', "int"), (f'F.date_add("{name}", 3)', "date")]
        choices += [(f'F.trunc("{name}", "{random.choice(["month", "year", "quarter"])}")', "date")]
    for name in frame.of("ts"):
        choices += [(f'F.date_format("{name}", "yyyy-MM-dd HH")', "str"), (f'F.to_date("{name}")', "date")]
    for name in frame.of("arr"):
        choices += [
            (f'F.aggregate("{name}", F.lit(0), lambda a, x: a + x)', "int"),
            (f'F.size(F.filter("{name}", lambda x: x > {random.randrange(7)}))', "int"),
            (f'F.transform("{name}", lambda x, i: x * {random.randrange(2, 5)} + i)', "arr"),
            (f'F.array_join(F.array_sort(F.array_distinct("{name}")), ",")', "str"),
            (f'F.exists("{name}", lambda x: x == {random.randrange(9)})', "bool"),
        ]
    for name in frame.of("struct"):
        choices += [(f'F.col("{name}.a")', "int"), (f'F.col("{name}").getField("b")', "str")]
        choices += [(f'F.to_json("{name}")', "str")]
    for name in frame.of("map"):
        choices += [
            (f'F.size(F.map_keys("{name}"))', "int"),
            (f'F.element_at("{name}", F.lit("p"))', "int"),
            (f'F.to_json(F.map_filter("{name}", lambda k, v: v > {random.randrange(6)}))', "str"),
        ]
    return random.choice(choices or [(f"F.lit({random.randrange(99)})", "int")])
