"""Plain Spark as the oracle: generated scripts see the same under recovery, uninterrupted, killed and run again."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.differential.bundle import Bundle, bundles, of_cases
from tests.differential.case import SHARED, Case
from tests.differential.data import make_data
from tests.differential.differential import Differential, moments
from tests.differential.fixed import fixed_cases
from tests.differential.processes import RUNTIME
from tests.differential.records import Record, differences
from tests.differential.walk import walk

SEED = int(os.environ.get("SPARK_RECOVERY_SEED", "1"))
"""Give another to try other cases and other moments."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("differential-data"))


def run(tmp_path: Path, data: Path) -> Differential:
    return Differential(tmp_path, data, SEED, say=print)


def found(runs: Differential) -> list[str]:
    return [finding.text()[:20_000] for finding in runs.outcome.findings]


@pytest.mark.integration
@pytest.mark.process
@pytest.mark.timeout(900)
def test_generated_scripts_see_what_plain_spark_shows(tmp_path: Path, data: Path) -> None:
    """Rows, order, files, errors and the session's state of generated cases are plain Spark's, without a failure and
    after a kill; the walk has those with a catalog or a stopped session, too, and the fixed cases have them killed.
    """
    runs = run(tmp_path, data)
    (bundle,) = (bundle for bundle in bundles(SEED, 12, 12) if bundle.kind == SHARED)
    runs.compare(bundle, kills=1)
    assert found(runs) == []


@pytest.mark.integration
@pytest.mark.process
@pytest.mark.timeout(900)
def test_fixed_cases_see_what_plain_spark_shows(tmp_path: Path, data: Path) -> None:
    """What was found once stays fixed: one in four cases, killed at one of the moments that it names; the walk has the
    others, and what happens without a failure.
    """
    runs = run(tmp_path, data)
    for bundle in of_cases(fixed_cases()[SEED % 4 :: 4]):
        places = moments(bundle)
        runs.compare(bundle, stops=Random(SEED).sample(places, min(1, len(places))), through=not places)
    assert found(runs) == []


@pytest.mark.walk
@pytest.mark.process
@pytest.mark.timeout(2 * 3600)
def test_each_fixed_case_alone_killed_at_each_of_its_moments(tmp_path: Path, data: Path) -> None:
    """Killed at every moment that a case names, one case a driver, what was found once stays fixed."""
    runs = run(tmp_path, data)
    for number, case in enumerate(fixed_cases()):
        for broadcast in ("-1", "10MB"):
            settings = {"spark.sql.autoBroadcastJoinThreshold": broadcast}
            bundle = Bundle(2 * number + (broadcast == "-1"), (case,), settings, case.kind)
            runs.compare(bundle, stops=moments(bundle))
    assert found(runs) == []


@pytest.mark.walk
@pytest.mark.process
@pytest.mark.timeout(12 * 3600)
def test_walk(tmp_path: Path, data: Path) -> None:
    """1,500 cases, 300 of them killed while they were at work, see what plain Spark shows."""
    runs = run(tmp_path, data)
    walk(runs, cases=1500, killed=300)
    assert runs.outcome.cases >= 1500
    assert runs.outcome.struck >= 300
    assert found(runs) == []


@pytest.mark.walk
@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_broken_engine_is_noticed(tmp_path: Path, data: Path) -> None:
    """Dropped, doubled, changed and reordered rows, other files and a leaked setting each make their case differ; a
    case that nothing is done to does not.
    """
    grouped = 't = spark.table("facts").groupBy("k").count()\n'
    rows = f'{grouped}r.frame("rows", t)\n'
    files = f'{grouped}t.write.mode("overwrite").parquet(f"{{out}}/w")\nr.written("w", f"{{out}}/w")\n'
    texts = {
        "drop": rows,
        "duplicate": rows,
        "first": rows,
        "reorder": 'r.frame("rows", spark.table("facts").orderBy("id").select("id"), ordered=True)\n',
        "files": files,
        "setting": files,
        "right": rows,
    }
    bundle = Bundle(0, tuple(Case(name, text) for name, text in texts.items()))
    runs = run(tmp_path, data)
    runs.broken(bundle, (str(RUNTIME / "broken.py"),))
    noticed = {case.rpartition("_")[0] for finding in runs.outcome.findings for case in finding.cases()}
    assert noticed == set(texts) - {"right"} or noticed == (set(texts) - {"right"}) | {"the session"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_generator_makes_the_same_scripts_for_a_seed(seed: int) -> None:
    """Scripts are made from the seed alone, each case once, and are valid Python."""
    one, two = bundles(seed, 200, 24), bundles(seed, 200, 24)
    assert [bundle.script() for bundle in one] == [bundle.script() for bundle in two]
    names = [case.name for bundle in one for case in bundle.cases]
    assert len(set(names)) == len(names) == 200
    for bundle in one:
        compile(bundle.script(), "script.py", "exec")


def test_flags_of_records() -> None:
    """What a case looks at on its way is not compared after it was begun before, and what depends on the number of
    cores only on the same number; a missing record is a difference.
    """
    plain = {("a", key): Record("a", key, 1, frozenset(flags)) for key, flags in _FLAGS.items()}
    other = {("a", key): Record("a", key, 2, frozenset(flags)) for key, flags in _FLAGS.items()}
    assert len(differences(plain, other)) == 3
    assert len(differences(plain, other, begun={"a"})) == 2
    assert len(differences(plain, other, same_layout=False)) == 2
    assert len(differences(plain, {})) == 3
    assert differences(plain, plain) == []


_FLAGS: dict[str, list[str]] = {"always": [], "on its way": ["fresh"], "files": ["layout"]}


def test_the_walks_plan_has_as_many_kills_as_asked_for() -> None:
    """A walk gives its kills to scripts of a catalog, of stopped sessions and of one session alike."""
    kinds = {bundle.kind for bundle in bundles(SEED, 1500, 24)}
    assert kinds == {"shared", "stopping", "tables"}
