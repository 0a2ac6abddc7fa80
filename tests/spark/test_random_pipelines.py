"""Whatever a job does, wherever it dies and whatever changes before its retry: the retry's rows are the right ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core.report import build_report
from airflow_provider.spark import checkpoint
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from tests.spark.attempts import Attempts, vertices
from tests.spark.failing_queries import KEEP_ALL, QUICK, forget_accumulators, restarts
from tests.spark.mortal import mortal_attempt
from tests.spark.random_pipelines import (
    KINDS,
    Pipeline,
    Rows,
    Step,
    apply,
    build,
    fails_by_chance,
    random_pipeline,
    source,
)

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.context import RecoveryContext

pytestmark = pytest.mark.spark

EXAMPLES = int(os.environ.get("SPARK_RECOVERY_EXAMPLES", "20"))
FIRST_SEED = int(os.environ.get("SPARK_RECOVERY_SEED", "1"))
"""Give others to try more, or other ones."""


@dataclass(frozen=True)
class Change:
    """What changes between the two attempts.

    :ivar kind: what
    :ivar which: which of several
    :ivar number: the new constant
    """

    kind: str
    which: int
    number: int

    def to_pipeline(self, pipeline: Pipeline) -> Pipeline:
        kinds = {"constant": KINDS, "function": FUNCTIONS}.get(self.kind)
        return pipeline.changed(kinds, self.which, self.number) if kinds else pipeline

    def to_world(self, data: Path, store: Path) -> None:
        """Make the change, if it is one of files."""
        if self.kind == "file added":
            write(data / "added.parquet", range(100, 100 + self.number))
        elif self.kind == "file written again":
            write(data / "part-1.parquet", range(50, 50 + self.number))
        stored = sorted(store.rglob("*.parquet"))
        if stored and self.kind in ("partition lost", "partition damaged"):
            victim = stored[self.which % len(stored)]
            body = bytearray(victim.read_bytes())
            victim.unlink()
            if self.kind == "partition damaged":
                body[len(body) // 2] ^= 1
                victim.write_bytes(body)

    def settings(self) -> dict[str, str]:
        if self.kind != "setting":
            return {}
        return [
            {"spark.sql.shuffle.partitions": str(1 + self.number % 5)},
            {"spark.sql.adaptive.enabled": "false"},
            {"spark.sql.adaptive.coalescePartitions.enabled": "false"},
            {"spark.sql.autoBroadcastJoinThreshold": "-1"},
            {"spark.sql.session.timeZone": "Asia/Tokyo"},
        ][self.which % 5]


CHANGES = (
    "constant",
    "nothing",
    "file added",
    "setting",
    "function",
    "partition damaged",
    "file written again",
    "partition lost",
)


FUNCTIONS = ("udf", "pandas udf")
DRAWS = {"rand", "limit"}
"""What gives other rows each time: what is to be the same later needs a recovery point behind it."""


def write(path: Path, ids: range) -> None:
    columns = {"id": list(ids), "k": [i % 6 for i in ids], "v": [i * 7 % 17 for i in ids]}
    pq.write_table(pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}), path)


@contextmanager
def configured(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def some_seeds(left: pytest.MarkDecorator) -> list[ParameterSet]:
    """Return those of all examples: one for each kind of change, and others for the walk.

    :param left: the mark of three of four of the first ones
    """
    return [
        pytest.param(seed, marks=[left] * bool(seed % 4))
        if seed < FIRST_SEED + len(CHANGES)
        else pytest.param(seed, marks=pytest.mark.walk)
        for seed in range(FIRST_SEED, FIRST_SEED + EXAMPLES)
    ]


@dataclass
class Tally:
    """Over all examples.

    :ivar examples: how many there were
    :ivar died: first attempts that died before they were through
    :ivar reused: partitions that second attempts reused
    :ivar notable: changes that a stale result would show: the first attempt had other rows at some recovery point
    """

    examples: int = 0
    died: int = 0
    reused: int = 0
    notable: int = 0


@dataclass(frozen=True)
class Retried:
    """What is wrong with a retry.

    :ivar wrong: each recovery point whose rows are not those that follow from the one before it
    :ivar computed_again: recovery points that were finished, and how many of their partitions the retry computed though
        nothing had changed
    """

    wrong: list[str]
    computed_again: dict[str, int]


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    """Says at the end whether the examples could show anything."""
    found = Tally()
    yield found
    if found.examples >= EXAMPLES:
        assert min(found.died, found.reused, found.notable) >= EXAMPLES // 5, f"too little happened: {found}"


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", some_seeds(pytest.mark.walk))
def test_a_retry_gives_the_right_rows_whatever_happened(
    spark: SparkSession, tmp_path: Path, tally: Tally, seed: int
) -> None:
    """A random pipeline dies at a random event, a random thing changes, and each recovery point of the retry has the
    rows that follow, by a run without recovery, from the recovery point before it; what was finished and did not change
    is not computed again.
    """
    random = Random(seed)
    kind = CHANGES[seed % len(CHANGES)]
    begins = {"function": random.choice(FUNCTIONS), "partition lost": "rand", "partition damaged": "rand"}.get(kind, "")
    pipeline = random_pipeline(random, "files" if kind.startswith("file") else "", begins)
    change = Change(kind, random.randint(0, 20), random.randint(1, 9))
    lives_for = random.choice((random.randint(2, 12), 99))
    options = {"spark.sql.adaptive.coalescePartitions.enabled": random.choice(("true", "false"))}
    print(f"{seed=}", pipeline, change, options, f"{lives_for=}", sep="\n")  # noqa: T201 - pytest shows it with a failure
    with configured(spark, options):
        retried = attempt_twice(spark, tmp_path, pipeline, change, lives_for, random.choice((0.01, 60.0)), tally)
    assert retried == Retried(wrong=[], computed_again={})


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["partition lost", "partition damaged"])
def test_what_was_derived_from_lost_random_numbers_goes_with_them(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Where a partition of random numbers is gone, the retry's recovery points still agree with one another."""
    pipeline = Pipeline("range", ((Step("rand", 2, ""),), (Step("arithmetic", 3, ""),)))
    retried = attempt_twice(spark, tmp_path, pipeline, Change(kind, 0, 1), 99, 0.01, Tally())
    assert retried.wrong == []


def attempt_twice(
    spark: SparkSession,
    folder: Path,
    pipeline: Pipeline,
    change: Change,
    lives_for: int,
    flush_interval: float,
    tally: Tally,
) -> Retried:
    data, attempts = folder / "data", Attempts(folder / "store")
    data.mkdir()
    write(data / "part-0.parquet", range(30))
    write(data / "part-1.parquet", range(30, 50))
    stale: list[Rows] = []
    with mortal_attempt(attempts, spark.sparkContext, lives_for, flush_interval):
        stale += (Rows.of(df) for df in build(spark, pipeline, data, checkpoint))

    change.to_world(data, attempts.folder)
    changed = change.to_pipeline(pipeline)
    with configured(spark, change.settings()):
        with attempts.attempt() as second:
            kept = {vertex.name for vertex in build_report("job", second.master.graph).vertices if vertex.finished}
            rows = [Rows.of(df) for df in build(spark, changed, data, checkpoint)]
            after = vertices(second)
        wrong = list(not_right(spark, changed, data, rows))
    computed_again = {name: after[name].computed for name in kept if change.kind == "nothing" and after[name].computed}
    tally.examples += 1
    tally.died += len(stale) < len(pipeline.stages)
    tally.reused += sum(vertex.reused for vertex in after.values())
    tally.notable += any(old.without("r") != new.without("r") for old, new in zip(stale, rows, strict=False))
    return Retried(wrong, computed_again)


@dataclass
class AutoTally:
    """Over all examples in auto mode.

    :ivar examples: how many there were
    :ivar died: attempts that died before they were through
    :ivar put_back: map outputs that later attempts reused
    :ivar restarts: of actions and recovery points within an attempt
    """

    examples: int = 0
    died: int = 0
    put_back: int = 0
    restarts: int = 0


@pytest.fixture(scope="module")
def auto_tally() -> Iterator[AutoTally]:
    """Says at the end whether the examples could show anything."""
    found = AutoTally()
    yield found
    if found.examples >= EXAMPLES:
        assert min(found.died, found.put_back, found.restarts) >= EXAMPLES // 4, f"too little happened: {found}"


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", some_seeds(pytest.mark.integration))
def test_so_does_auto_mode(spark: SparkSession, tmp_path: Path, auto_tally: AutoTally, seed: int) -> None:
    """Some recovery points are the script's, others are shuffles that are kept. Tasks fail in each attempt, and are
    restarted; two attempts are killed, something changes between them, and the third one is through.
    """
    forget_accumulators()  # those of other tests in this process
    random = Random(seed)
    kind = CHANGES[seed % len(CHANGES)]
    begins = {"file added": "filter", "function": random.choice(FUNCTIONS)}.get(kind, "group")
    pipeline = random_pipeline(random, "files" if kind.startswith("file") else "", begins)
    change = Change(kind, random.randint(0, 20), random.randint(1, 9))
    lives = [random.choice((random.randint(3, 15), 99)), random.randint(3, 25)]
    unnamed = {
        f"s{number}" for number, steps in enumerate(pipeline.stages) if not DRAWS & {step.kind for step in steps}
    }
    kept = {name for name in sorted(unnamed) if random.random() < 0.7}
    failures = [random.randint(0, 2) for _ in range(3)]
    print(f"{seed=}", pipeline, change, f"{lives=} {kept=} {failures=}", sep="\n")  # noqa: T201 - as above

    data, chance = tmp_path / "data", tmp_path / "chance"
    data.mkdir()
    chance.mkdir()
    write(data / "part-0.parquet", range(30))
    write(data / "part-1.parquet", range(30, 50))
    attempts = Attempts(tmp_path / "store", {**KEEP_ALL, **QUICK, "restart_strategy_fixed_delay_attempts": "99"})

    def recovery_point(df: DataFrame, name: str) -> DataFrame:
        df = fails_by_chance(df, chance)
        return df if name in kept else checkpoint(df, name)

    def run(context: RecoveryContext, script: Pipeline, number: int) -> list[Rows]:
        for failure in range(failures[number]):
            (chance / f"{number}-{failure}").touch()
        found = []
        for df in build(spark, script, data, recovery_point):
            found.append(Rows.of(df))
            context.master.check()
            watch(context, df)
            context.master.check()
        return found

    for number, lives_for in enumerate(lives):
        script = change.to_pipeline(pipeline) if number else pipeline
        if number == 1:
            change.to_world(data, attempts.folder)
        with (
            configured(spark, change.settings() if number else {}),
            mortal_attempt(attempts, spark.sparkContext, lives_for, 0.01, script=True) as context,
        ):
            run(context, script, number)
            auto_tally.died -= 1
        auto_tally.died += 1
        auto_tally.restarts += restarts(context)
    with configured(spark, change.settings()):
        with attempts.script() as last:
            rows = run(last, script, 2)
            reused = [vertex.reused for vertex in vertices(last).values() if vertex.name.startswith("shuffle")]
        auto_tally.restarts += restarts(last)
        assert list(not_right(spark, script, data, rows)) == []
    auto_tally.examples += 1
    auto_tally.put_back += sum(reused)


def watch(context: RecoveryContext, df: DataFrame) -> None:
    """Let a query be looked at that has run, however quickly: the script holds it."""
    shuffles = context.shuffles
    assert shuffles is not None
    application = shuffles.watcher.application()  # type: ignore[attr-defined]
    application.note(df._jdf.queryExecution(), QuerySettings(all_settings(df.sparkSession)))
    shuffles.watcher.catch_up()  # type: ignore[attr-defined]


def not_right(spark: SparkSession, pipeline: Pipeline, data: Path, rows: list[Rows]) -> Iterator[str]:
    """Compare each recovery point with what follows from the one before it when nothing is recorded."""
    for number, steps in enumerate(pipeline.stages):
        before = rows[number - 1].frame(spark) if number else source(spark, pipeline.source, data)
        first = rows[0].frame(spark) if number else None
        kinds = [step.kind for step in steps]
        random = ("r",) if "rand" in kinds else ()
        limit = steps[-1] if kinds[-1] == "limit" else None
        expected = Rows.of(apply(before, steps[:-1] if limit else steps, data, first))
        got = rows[number]
        if got.columns != expected.columns:
            yield f"s{number} has the columns {got.columns}, not {expected.columns}"
            continue
        if limit is None:
            if got.without(*random) != expected.without(*random):
                yield f"s{number} has rows that are not right: {got}, not {expected}"
        else:
            if len(got.rows) != min(limit.number * 5, len(expected.rows)):
                yield f"s{number} has {len(got.rows)} of {len(expected.rows)} rows, its limit is {limit.number * 5}"
            if not Counter(map(repr, got.without(*random).rows)) <= Counter(map(repr, expected.without(*random).rows)):
                yield f"s{number} has rows that are not among the right ones: {got}, not {expected}"
        for row in got.rows if random and "r" in got.columns else ():
            if not 0 <= row[got.columns.index("r")] < 1:
                yield f"s{number} has a random number that is none: {row}"
