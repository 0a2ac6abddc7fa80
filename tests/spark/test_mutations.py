"""Between two attempts something changes: what must be is computed again, what need not be is reused.

Attempt 1 is a driver of its own, so that everything is compared from one process and JVM to another; it stores all
vertices and fails. Attempt 2 runs the changed script in this process, once with recovery and once without.
"""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.attempts import Attempts, vertices
from tests.spark.mutations.cases import MUTATIONS, Mutation, write_inputs
from tests.support.driver import DriverHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.integration]

SCRIPTS = Path(__file__).parent / "mutations"
MODULES = ("pricing", "rates", "discounts")


@dataclass(frozen=True)
class Base:
    """What attempt 1 left, and its inputs, which are put back after each test."""

    folder: Path

    @contextmanager
    def copy(self, folder: Path) -> Iterator[tuple[Path, Path]]:
        """Yield a copy of the scripts and one of the event store."""
        scripts, store = folder / "scripts", folder / "store"
        shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(self.folder / "store", store)
        try:
            yield scripts, store
        finally:
            shutil.rmtree(self.folder / "data")
            shutil.copytree(self.folder / "data-as-it-was", self.folder / "data")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tmp_path_factory.mktemp("base")
    write_inputs(folder / "data")
    shutil.copytree(folder / "data", folder / "data-as-it-was")
    scripts = folder / "scripts"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    script = scripts / "pipeline.py"
    script.write_text(script.read_text() + "raise RuntimeError('attempt 1 ends here')\n")
    driver = DriverHarness(folder, f"file://{folder}/store", job_id="dag/run/task/-1")
    outcome = driver.run(script, str(folder / "data"), PYTHONHASHSEED="1", PYTHONPATH=str(scripts))
    assert outcome.code == 1, outcome.log
    assert "attempt 1 ends here" in outcome.log
    assert {
        name: len(driver.partitions(name)) > 0 for name in ("clean", "scored", "joined", "totals")
    } == dict.fromkeys(("clean", "scored", "joined", "totals"), True)
    return Base(folder)


def run(scripts: Path, data: Path) -> list[str]:
    """Run the script as the runner does; return its result."""
    arguments, path = sys.argv, [*sys.path]
    sys.argv, sys.path[:0] = ["pipeline.py", str(data)], [str(scripts)]
    try:
        return list(runpy.run_path(str(scripts / "pipeline.py"), run_name="__main__")["RESULT"])
    finally:
        sys.argv, sys.path[:] = arguments, path
        for module in MODULES:
            sys.modules.pop(module, None)


@pytest.fixture
def modules_for_workers(spark: SparkSession) -> Iterator[Callable[[Path], None]]:
    """Sets where Python workers find modules; those of another place are new processes that imported nothing yet."""
    environment = spark.sparkContext.environment

    def use(folder: Path) -> None:
        environment["PYTHONPATH"] = str(folder)

    yield use
    environment.pop("PYTHONPATH", None)


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[dict[str, str]]:
    """Settings to make; undone afterwards."""
    made: dict[str, str] = {}
    yield made
    for name in made:
        spark.conf.unset(name)
    spark.conf.set("spark.sql.shuffle.partitions", "4")


@pytest.mark.parametrize(
    "mutation",
    [pytest.param(one, marks=[] if at % 15 == 0 else pytest.mark.walk) for at, one in enumerate(MUTATIONS)],
    ids=lambda mutation: mutation.name.replace(" ", "-"),
)
def test_a_change_between_two_attempts(
    spark: SparkSession,
    base: Base,
    tmp_path: Path,
    settings: dict[str, str],
    modules_for_workers: Callable[[Path], None],
    mutation: Mutation,
) -> None:
    """Exactly the vertices that the change concerns are computed again, the reason is said, the result is right."""
    with base.copy(tmp_path) as (scripts, store):
        mutation.mutate(scripts)
        modules_for_workers(scripts if mutation.changes_modules else SCRIPTS)
        if mutation.data:
            mutation.data(base.folder / "data")
        for name, value in mutation.settings.items():
            settings[name] = value
            spark.conf.set(name, value)
        with Attempts(store).attempt() as context:
            result = run(scripts, base.folder / "data")
            graph = context.master.graph
            computed = {name for name, vertex in vertices(context).items() if vertex.computed}
            because = {v.initialized.name: v.initialized.because for v in graph.vertices.values() if 2 in v.reached_by}
            skipped = graph.newest.skipped if graph.newest else []
        assert not skipped
        assert computed == set(mutation.computed), because
        if mutation.because:
            said = "; ".join(because[mutation.computed[0]])
            assert re.search(mutation.because, said), said
        assert result == run(scripts, base.folder / "data")


def test_there_are_at_least_sixty_changes() -> None:
    """The suite is as wide as it claims, and no name stands twice."""
    names = [mutation.name for mutation in MUTATIONS]
    assert len(names) == len({*names}) >= 60
