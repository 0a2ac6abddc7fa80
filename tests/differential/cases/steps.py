"""Transformations that a random DataFrame program is made of."""

from __future__ import annotations

from collections.abc import Callable

from tests.differential.cases.frames import HINTS, Frame, Program, computed, predicate

Step = Callable[[Program, Frame], Frame]


def where(program: Program, frame: Frame) -> Frame:
    return program.new(f"{frame.name}.where({predicate(program.random, frame)})", frame.columns, frame.small)


def with_column(program: Program, frame: Frame) -> Frame:
    expression, kind = computed(program.random, frame)
    name = f"c{program.count}"
    return program.new(f'{frame.name}.withColumn("{name}", {expression})', {**frame.columns, name: kind}, frame.small)


def group(program: Program, frame: Frame) -> Frame:
    random = program.random
    keys = random.sample(frame.orderable(), random.choice([1, 1, 2]) if len(frame.orderable()) > 1 else 1)
    columns = {key: frame.columns[key] for key in keys}
    parts = []
    for number, name in enumerate(random.sample(frame.orderable(), min(3, len(frame.orderable())))):
        made, kind = _aggregate(program, name, frame.columns[name])
        parts.append(f'{made}.alias("a{program.count}_{number}")')
        columns[f"a{program.count}_{number}"] = kind
    how = random.choice(["groupBy", "groupBy", "groupBy", "rollup", "cube"])
    names = ", ".join(f'"{key}"' for key in keys)
    return program.new(f"{frame.name}.{how}({names}).agg({', '.join(parts)})", columns)


def _aggregate(program: Program, name: str, kind: str) -> tuple[str, str]:
    random = program.random
    general = [(f'F.max("{name}")', kind), (f'F.min("{name}")', kind), (f'F.count("{name}")', "int")]
    general += [(f'F.countDistinct("{name}")', "int"), (f'F.approx_count_distinct("{name}")', "int")]
    if kind == "int":
        general += [(f'F.sum("{name}")', "int"), (f'F.sum_distinct("{name}")', "int")]
        general += [(f'(F.sum("{name}").cast("decimal(38,4)") / F.count(F.lit(1)))', "dec")]
        general += [(f'F.percentile("{name}", 0.5).cast("string")', "str")]
        general += [(f'F.array_join(F.array_sort(F.collect_set("{name}")), ";")', "str")]
    if kind == "dec":
        general += [(f'F.sum("{name}")', "dec"), (f'F.avg("{name}")', "dec")]
    if kind == "bool":
        general += [(f'F.bool_or("{name}")', "bool"), (f'F.count_if("{name}")', "int")]
    return random.choice(general)


def join(program: Program, frame: Frame) -> Frame:
    """A join with a frame that has at most a row for each key, so that rows do not multiply."""
    random = program.random
    if not frame.of("int"):
        return where(program, frame)
    key = "k" if "k" in frame.columns else random.choice(frame.of("int"))
    other = program.small()
    renamed = {("k_r" if name == "k" else f"{name}_{program.count}"): kind for name, kind in other.columns.items()}
    names = ", ".join(f'"{name}"' for name in renamed)
    other = program.new(f"{other.name}.toDF({names})", renamed, True)
    if "k_r" in frame.columns:
        own = f"k_r{program.count}"
        kept = {(own if name == "k_r" else name): kind for name, kind in other.columns.items()}
        other = program.new(f'{other.name}.withColumnRenamed("k_r", "{own}")', kept, True)
    right = own if "k_r" in frame.columns else "k_r"
    how = random.choice(["inner", "inner", "left", "right", "full", "left_semi", "left_anti"])
    hinted = other.name if random.random() < 0.6 else f'{other.name}.hint("{random.choice(HINTS)}")'
    condition = f'{frame.name}["{key}"] == {other.name}["{right}"]'
    if random.random() < 0.2:
        condition = f"({condition}) & ({other.name}['{right}'] % 3 != 1)"
    columns = frame.columns if how in ("left_semi", "left_anti") else {**frame.columns, **other.columns}
    return program.new(f'{frame.name}.join({hinted}, {condition}, "{how}")', dict(columns))


def self_join(program: Program, frame: Frame) -> Frame:
    """The frame with its own counts: the shuffle below may be used twice."""
    key = program.random.choice(frame.orderable())
    counts = f'{frame.name}.groupBy("{key}").agg(F.count("*").alias("n{program.count}"))'
    columns = {key: frame.columns[key], **{name: kind for name, kind in frame.columns.items() if name != key}}
    columns[f"n{program.count}"] = "int"
    return program.new(f'{frame.name}.join({counts}, "{key}")', columns)


def cross(program: Program, frame: Frame) -> Frame:
    name = f"x{program.count}"
    few = program.random.choice(
        [f'spark.range(3).toDF("{name}")', f'spark.createDataFrame([(1,), (5,)], "{name} int")']
    )
    if not (frame.small or program.random.random() < 0.3):
        return where(program, frame)
    return program.new(f"{frame.name}.crossJoin({few})", {**frame.columns, name: "int"})


def window(program: Program, frame: Frame) -> Frame:
    frame = program.flat(frame)
    random = program.random
    key, name = random.choice(frame.orderable()), f"w{program.count}"
    over = f'Window.partitionBy("{key}").orderBy({program.total_order(frame)})'
    number = random.choice(frame.of("int") or [""])
    choices = [("F.row_number()", "int"), ("F.rank()", "int"), ("F.ntile(3)", "int"), ("F.count(F.lit(1))", "int")]
    choices += [(f'F.{which}("{random.choice(frame.orderable())}")', "") for which in ("lag", "lead", "first", "last")]
    if number:
        choices += [(f'F.sum("{number}")', "int"), (f'F.max("{number}")', "int")]
        over += random.choice(["", ".rowsBetween(-2, 1)", ".rowsBetween(Window.unboundedPreceding, 0)"])
    function, kind = random.choice(choices)
    if not kind:
        kind = frame.columns[function.split('"')[1]]
    if any(word in function for word in ("row_number", "rank", "ntile", "lag", "lead")):
        over = over.split(".rowsBetween")[0]
    return program.new(f'{frame.name}.withColumn("{name}", {function}.over({over}))', {**frame.columns, name: kind})


def set_operation(program: Program, frame: Frame) -> Frame:
    frame = program.flat(frame)
    one, other = predicate(program.random, frame), predicate(program.random, frame)
    how = program.random.choice(["union", "unionByName", "intersect", "intersectAll", "exceptAll", "subtract"])
    left = f"{frame.name}.where({one})"
    return program.new(f"{left}.{how}({frame.name}.where({other}))", frame.columns, frame.small)


def distinct(program: Program, frame: Frame) -> Frame:
    names = program.random.sample(frame.orderable(), min(2, len(frame.orderable())))
    chosen = ", ".join(f'"{name}"' for name in names)
    how = program.random.choice(
        [".distinct()", ".dropDuplicates()", f'.dropDuplicates(["{names[0]}"]).select("{names[0]}")']
    )
    columns = {name: frame.columns[name] for name in (names[:1] if how.count("select") else names)}
    return program.new(f"{frame.name}.select({chosen}){how}", columns)


def limit(program: Program, frame: Frame) -> Frame:
    frame = program.flat(frame)
    number, skipped = program.random.choice([3, 20, 150, 2000]), program.random.choice(["", "", ".offset(5)"])
    sort = program.total_order(frame)
    return program.new(f"{frame.name}.orderBy({sort}){skipped}.limit({number})", frame.columns, number <= 20)


def explode(program: Program, frame: Frame) -> Frame:
    arrays = frame.of("arr", "sarr")
    if not arrays:
        return with_column(program, frame)
    array = program.random.choice(arrays)
    name, kind = f"e{program.count}", "int" if frame.columns[array] == "arr" else "str"
    how = program.random.choice(["explode", "explode_outer"])
    return program.new(f'{frame.name}.withColumn("{name}", F.{how}("{array}"))', {**frame.columns, name: kind})


def spread(program: Program, frame: Frame) -> Frame:
    """Something that moves rows or keeps them, and does not change them."""
    key = program.random.choice(frame.orderable())
    how = program.random.choice(
        [
            "repartition(3)",
            f'repartition(3, "{key}")',
            f'repartition("{key}")',
            f'repartitionByRange(4, "{key}")',
            "coalesce(1)",
            "coalesce(2)",
            f'sortWithinPartitions("{key}")',
            f'orderBy("{key}")',
            'hint("rebalance")',
            "cache()",
            "persist()",
            "localCheckpoint()",
            "localCheckpoint(eager=False)",
            'alias("z")',
        ]
    )
    made = program.new(f"{frame.name}.{how}", frame.columns, frame.small)
    if how in ("cache()", "persist()") and program.random.random() < 0.5:
        program.last.append(f"{made.name}.unpersist()")
    return made


def view(program: Program, frame: Frame) -> Frame:
    """Through SQL on a temporary view."""
    name, key = f"v{program.count}", program.random.choice(frame.orderable())
    program.add(f'{frame.name}.createOrReplaceTempView("{name}")')
    condition = program.random.choice(
        [
            f"{key} IN (SELECT {key} FROM {name} GROUP BY {key} HAVING count(*) > 1)",
            f"EXISTS (SELECT 1 FROM dims WHERE dims.w > 25 AND cast(dims.k AS string) = cast(x.{key} AS string))",
            f"{key} >= (SELECT min({key}) FROM {name})",
            f"{key} <= (SELECT max(y.{key}) FROM {name} y WHERE y.{key} = x.{key})",
            f"NOT EXISTS (SELECT * FROM dims WHERE cat = 'c3' AND name = cast(x.{key} AS string))",
        ]
    )
    return program.new(f'spark.sql("""SELECT * FROM {name} x WHERE {condition}""")', frame.columns, frame.small)


def udf(program: Program, frame: Frame) -> Frame:
    """A Python function of some kind on a column."""
    random, name, numbers = program.random, f"u{program.count}", frame.of("int")
    if not numbers:
        return where(program, frame)
    column, add = random.choice(numbers), random.randrange(1, 90)
    body, kind = random.choice(
        [
            (f'F.udf(lambda x: None if x is None else x + {add}, "long")', "int"),
            (f'F.udf(lambda x: f"{{x}}/{add}", "string", useArrow=True)', "str"),
            ('F.udf(imported_functions.shifted, "long")', "int"),
            (f'F.pandas_udf(lambda x: (x.fillna(0) % {add}).astype("int64"), "long", F.PandasUDFType.SCALAR)', "int"),
        ]
    )
    return program.new(f'{frame.name}.withColumn("{name}", {body}("{column}"))', {**frame.columns, name: kind})


STEPS: dict[Step, int] = {
    where: 5,
    with_column: 6,
    group: 6,
    join: 6,
    self_join: 2,
    cross: 1,
    window: 4,
    set_operation: 3,
    distinct: 2,
    limit: 2,
    explode: 2,
    spread: 5,
    view: 3,
    udf: 3,
}
