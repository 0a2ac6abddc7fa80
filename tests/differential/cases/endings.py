"""What a random DataFrame program does with its frames: actions and writes, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Callable

from tests.differential.cases.frames import Frame, Program

Ending = Callable[[Program, Frame], None]


def collect(program: Program, frame: Frame) -> None:
    program.add(f'r.frame("collect", {frame.name})')


def ordered(program: Program, frame: Frame) -> None:
    frame = program.flat(frame)
    sort = program.total_order(frame)
    action = program.random.choice(
        [
            'r.rows("ordered", {f}.collect(), ordered=True)',
            'r.rows("ordered", [tuple(x) for x in {f}.toPandas().astype(str).itertuples(index=False)], ordered=True)',
            'r.rows("ordered", {f}.toArrow().to_pylist(), ordered=True)',
            'r.rows("ordered", list({f}.toLocalIterator()), ordered=True)',
            'r.rows("take", {f}.take(7), ordered=True)',
            'r.value("first", {f}.first())',
            'r.rows("head", {f}.head(4), ordered=True)',
            'r.rows("tail", {f}.tail(6), ordered=True)',
            'r.shown("show", lambda: {f}.show(9, truncate=False))',
            'r.shown("show vertical", lambda: {f}.show(3, vertical=True))',
            'r.rows("rdd", {f}.rdd.map(tuple).collect(), ordered=True)',
            "rows = {f}.toLocalIterator()\n"
            'r.rows("begun", [next(rows, None) for _ in range(5)], ordered=True)\ndel rows',
            'r.rows("offset", {f}.offset(4).limit(6).collect(), ordered=True)',
            '{f}.write.mode("overwrite").parquet(f"{{out}}/sorted")\n'
            'r.written("sorted", f"{{out}}/sorted", ordered=True)',
            '{f}.coalesce(1).write.mode("overwrite").json(f"{{out}}/one")\n'
            'r.written("one", f"{{out}}/one", ordered=True, fixed=True)',
        ]
    )
    program.add(f"s = {frame.name}.orderBy({sort})")
    for line in action.format(f="s").split("\n"):
        program.add(line)


def counted(program: Program, frame: Frame) -> None:
    names = frame.orderable()
    column = program.random.choice(names)
    action = program.random.choice(
        [
            'r.value("count", {f}.count())',
            'r.value("empty", {f}.isEmpty())',
            'r.value("count distinct", {f}.select("{c}").distinct().count())',
            'r.value("rdd count", {f}.rdd.count())',
            'r.value("rdd groups", sorted({f}.rdd.map(lambda x: (str(x["{c}"]), 1)).reduceByKey(lambda a, b: a + b)'
            ".collect())[:50])",
            "r.rows(\"describe\", {f}.describe(\"{c}\").where(\"summary in ('count', 'min', 'max')\").collect())",
            'r.rows("summary", {f}.select("{c}").summary("count", "min", "max").collect())',
            "seen = spark.sparkContext.accumulator(0)\n{f}.foreach(lambda row: seen.add(1))\n"
            'r.value("foreach", seen.value)',
            "seen = spark.sparkContext.accumulator(0)\n"
            '{f}.foreachPartition(lambda rows: seen.add(sum(1 for _ in rows)))\nr.value("partitions", seen.value)',
            "watch = Observation()\n"
            '{f}.observe(watch, F.count(F.lit(1)).alias("rows"), F.max("{c}").alias("top")).collect()\n'
            'r.value("observed", watch.get)',
            'r.text("plan", {f}._jdf.queryExecution().simpleString())',
            'r.value("layout", {f}.rdd.getNumPartitions(), layout=True)',
        ]
    )
    for line in action.format(f=frame.name, c=column).split("\n"):
        program.add(line)


def written(program: Program, frame: Frame) -> None:
    """A write, in a format that holds the columns."""
    random, name = program.random, f"w{program.count}_{len(program.lines)}"
    frame = program.flat(frame)
    path = f'f"{{out}}/{name}"'
    how = random.choice(["parquet", "parquet", "parquet", "json", "csv", "orc", "noop", "text"])
    change = random.choice(
        ["", "", "", ".coalesce(1)", ".repartition(3)", f'.repartition(3, "{frame.orderable()[0]}")']
    )
    fixed = ", fixed=True" if change else ""
    if how == "noop":
        program.add(f'{frame.name}.write.format("noop").mode("overwrite").save()')
        return
    writer = f'{frame.name}{change}.write.mode("{random.choice(["overwrite", "append", "error", "ignore"])}")'
    if how == "text":
        column = random.choice(frame.orderable())
        program.add(
            f'{frame.name}{change}.select(F.col("{column}").cast("string")).write.mode("overwrite").text({path})'
        )
    elif random.random() < 0.3 and len(frame.columns) > 1 and how != "csv":
        keys = [key for key in frame.orderable() if frame.columns[key] in ("bool", "str")][:1] or frame.orderable()[:1]
        few = f'.where(F.col("{keys[0]}").isNull() | (F.hash("{keys[0]}") % 9 == 0))'
        writer = writer.replace(".write", f"{few}.write", 1)
        program.add(f'{writer}.partitionBy("{keys[0]}").{how}({path})')
    else:
        program.add(f"{writer}.{how}({path})")
    program.add(f'r.written("{name}", {path}{fixed})')


ENDINGS: dict[Ending, int] = {collect: 4, ordered: 5, counted: 5, written: 5}
