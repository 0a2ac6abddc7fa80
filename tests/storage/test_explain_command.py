"""``spark-recovery explain`` of jobs in a real store: what was kept, what a retry would save, and what forbids it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider.cli import main as cli
from airflow_provider.core.run_request import EXIT_CONFIGURATION
from airflow_provider.storage.discarding import discard
from airflow_provider.storage.files import FileObjectStore
from tests.storage.failed_jobs import JOB, fail_after
from tests.support.small_driver import PARTITIONS


def explain(store: FileObjectStore, *flags: str) -> int:
    return cli.main(["explain", "--event-store", store.uri, "--job-id", str(JOB), *flags])


def test_a_failed_job_is_explained(files: FileObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What its attempt kept, as a tree and as JSON, and what a retry would save now."""
    fail_after(files, tmp_path, "a", "b")
    assert explain(files) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == f"Job {JOB}: FAILED in attempt 1"
    assert f"  kept {2 * PARTITIONS} partitions" in text
    assert f"A retry would reuse {2 * PARTITIONS} of {2 * PARTITIONS} partitions" in text
    assert explain(files, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(point["name"], point["stored"], point["would_reuse"]) for point in told["points"]] == [
        ("a", PARTITIONS, PARTITIONS), ("b", PARTITIONS, PARTITIONS),
    ]  # fmt: skip


def test_a_discarded_job_saves_nothing(
    files: FileObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The events know nothing of the discard; the store does."""
    fail_after(files, tmp_path, "a")
    discard(files, JOB.prefix, by="ann", timeout=5)
    assert explain(files) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == ("A retry would reuse nothing, because what attempt 1 and earlier ones stored was discarded by ann.")


def test_what_is_wrong_with_the_store_is_said(
    files: FileObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That a retry saves less, because a block of events cannot be read, is no riddle."""
    fail_after(files, tmp_path, "a", "b")
    block = max(info.key for info in files.list(f"{JOB.prefix}/events/"))
    files.path_of(block).write_bytes(b"damaged")
    assert explain(files) == 0
    assert "note: block " in capsys.readouterr().out
    assert explain(files, "--json") == 0
    assert "is damaged" in json.loads(capsys.readouterr().out)["problems"][0]


def test_an_unknown_job_is_one_line(files: FileObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    """It says which job and which store."""
    assert explain(files) == EXIT_CONFIGURATION
    assert f"There is no job {str(JOB)!r}" in capsys.readouterr().err
