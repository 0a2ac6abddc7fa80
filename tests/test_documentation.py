"""What the documents state about the code is compared with the code."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider import __version__
from airflow_provider.core import events, faults
from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from airflow_provider.core.partitions import StoredPartition
from tests.ablation.ablate import read_results
from tests.ablation.mechanism_table import with_table
from tests.ablation.rows import ROWS
from tests.support import option_tables

ROOT = Path(__file__).parents[1]
OPTIONS = (ROOT / "docs" / "options.md").read_text()
RECOVERY = (ROOT / "docs" / "recovery.md").read_text()
STORAGE_FORMAT = (ROOT / "docs" / "storage-format.md").read_text()


def table_rows(text: str, first_cell: str) -> list[list[str]]:
    """The cells of a Markdown table's rows below the header that begins with *first_cell*."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_cell} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_tables_of_options_are_those_of_the_code() -> None:
    """Nobody writes them; ``python -m tests.support.option_tables`` does."""
    assert option_tables.tables(OPTIONS) == OPTIONS


def test_every_option_is_in_the_documents() -> None:
    """With the default that the code has, read as a user would write it."""
    rows = [row for part in OPTIONS.split("\n## ")[1:] for row in table_rows(part, "option")]
    listed = {name: default for row in rows for name in quoted(row[0]) for default in [*quoted(row[1]), ""][:1]}
    for group in (RecoveryOptions, StorageOptions):
        mine = {name: listed.pop(name) for name in group.declared()}
        assert group.from_mapping(mine) == group()
    assert not listed


def test_the_storage_format_lists_every_event_with_its_fields() -> None:
    """The table of events names each type and each field of its own."""
    common = {item.name for item in dataclasses.fields(events.JobEvent)}
    listed = {quoted(row[0])[0]: set(quoted(row[1])) for row in table_rows(STORAGE_FORMAT, "type")}

    assert listed == {
        cls.__name__: {item.name for item in dataclasses.fields(cls)} - common
        for cls in events.JobEvent.__subclasses__()
    }


def test_the_examples_of_keys_are_real_keys() -> None:
    """The storage format's examples of a job's prefix and of a partition's name are what the code writes and reads."""
    prefix = JobId.of_task_instance("flights", "manual__2026-01-01T00:00:00+00:00", "features").prefix
    assert f"\n    {prefix}\n" in STORAGE_FORMAT

    (name,) = re.findall(r"^ +(\d{6}-of-\S+\.parquet)$", STORAGE_FORMAT, re.MULTILINE)
    partition = StoredPartition.from_key(f"partitions/scored-0/1/{name}", size=1)
    assert partition is not None
    assert (partition.index, partition.parallelism, partition.epoch, partition.task) == (4, 12, 1, 87)
    assert (partition.rows, partition.checksum, partition.millis) == (27381, "a4c1f00d", 3912)


def test_the_tests_that_documents_name_exist() -> None:
    """Each path below ``tests/`` is there, and has the test that is named behind ``::``."""
    named = re.compile(r"`(tests/[\w./-]+)(?:::(\w+))?`")
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    found: list[tuple[Path, str, str | None]] = [
        (document, match[1], match[2]) for document in documents for match in named.finditer(document.read_text())
    ]
    assert len(found) > 50
    missing = [
        f"{document.name}: {path}::{name or ''}"
        for document, path, name in found
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert missing == []


def test_the_table_of_mechanisms_is_what_switching_them_off_has_shown() -> None:
    """``make ablate`` writes it, and ``python -m tests.ablation --table`` where only words have changed."""
    assert with_table(RECOVERY, ROWS, read_results()) == RECOVERY
    assert [row[0] for row in table_rows(RECOVERY, "#")] == [str(number) for number in range(1, 36)]
    assert "not shown" not in RECOVERY


def test_the_release_notes_begin_with_the_version_of_the_package() -> None:
    """The version stands in one place; the newest notes are of it, or say that they become it."""
    notes = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert notes.startswith(f"[{__version__}]") or f"To become {__version__}." in notes


def test_the_map_for_newcomers_leads_to_files_that_are_there() -> None:
    """Each task names one file."""
    rows = table_rows((ROOT / "CONTRIBUTING.md").read_text(), "to …")
    assert len(rows) >= 20
    for task, cell in rows:
        (file,) = quoted(cell)
        assert (ROOT / "airflow_provider" / file).is_file(), task


def test_the_recovery_document_states_the_strategies_defaults() -> None:
    """Each parameter with the default that the code has, and none is missing."""
    told = {
        f"restart_strategy_{name}": default.strip()
        for row in table_rows(RECOVERY, "`restart_strategy`")
        for name, default in re.findall(r"`(\w+)` ([^,`]+)", row[2])
    }

    names = {item.name for item in dataclasses.fields(RecoveryOptions) if item.name.startswith("restart_strategy_")}
    assert told.keys() == names
    assert RecoveryOptions.from_mapping(told) == RecoveryOptions()


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "docs/auto.md",
        "docs/options.md",
        "docs/how-it-works.md",
        "docs/command-line.md",
        "docs/sinks.md",
        "docs/recovery.md",
        "docs/airflow-ui.md",
        "docs/deploy-modes.md",
        "docs/deferrable.md",
        "docs/metrics.md",
        "docs/taskflow.md",
        "docs/operating.md",
        "docs/migration.md",
        "docs/faq.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/storage-format.md",
    ],
)
def test_links_between_documents_lead_somewhere(document: str) -> None:
    """A relative link names a file that is there."""
    path = ROOT / document
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", path.read_text())

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_example_of_a_fault_point_exists() -> None:
    """CONTRIBUTING's example can be typed in."""
    (name,) = re.findall(rf"{faults.FAULT}=([a-z-]+)@", (ROOT / "CONTRIBUTING.md").read_text())

    assert name in faults.POINTS


def test_the_migration_guides_examples_differ_in_import_and_class_only() -> None:
    """Before and after are the same operator call otherwise."""
    before, after = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "migration.md").read_text(), re.DOTALL)
    ours = before.replace(
        "airflow.providers.apache.spark.operators.spark_submit", "airflow_provider.operators.spark_recovery"
    )

    assert ours.replace("SparkSubmitOperator", "SparkRecoveryOperator") == after
    compile(after, "after", "exec")


def test_the_operating_guide_quotes_the_benchmarks() -> None:
    """Each figure of its sizing table is in docs/benchmarks.md."""
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    numbers = r"\d[\d,]*(?:\.\d+)?"
    rows = table_rows((ROOT / "docs" / "operating.md").read_text(), "what")

    assert len(rows) == 6
    told = [number for row in rows for cell in row for number in re.findall(numbers, cell)]
    assert [number for number in told if number not in re.findall(numbers, measured)] == []


@pytest.mark.integration
def test_the_documents_build_as_pages(tmp_path: Path) -> None:
    """``make docs``: no link leads nowhere, no name of the reference is missing, no mark-up of Sphinx is left."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    pages = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.html")}
    examples = {f"examples/{path.stem}.html" for path in (ROOT / "dags").glob("*.py")}
    decisions = {f"decisions/{path.stem}.html" for path in (ROOT / "docs" / "decisions").glob("*.md")}
    documents = {"index.html", "contributing.html", "changelog.html", "security.html", "auto.html"}
    assert {*examples, *decisions, *documents} <= pages.keys()
    reference = pages["api/operators.html"] + pages["api/scripts.html"]
    for name in ("SparkRecoveryOperator", "SparkRecoveryHook", "checkpoint", "UnrecoverableError"):
        assert re.search(rf'id="airflow_provider\.[\w.]+\.{name}"', reference), name
    shown = re.sub(r"<script.*?</script>", "", reference, flags=re.DOTALL)
    assert not re.search(r":(class|func|meth|param|raises):?", shown)
