"""Claims: one owner per epoch, whoever races, and a certain answer about a dead process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider.core.errors import ObjectExists
from airflow_provider.core.lease import Lease
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import PREFIX
from tests.support.stores import WatchedStore


def test_epochs_count_up_and_the_newest_is_known(store: ObjectStore) -> None:
    """Every claim gets the next epoch; newest() is the last one as it was written, get() any of them."""
    claims = Claims(store, PREFIX)
    assert claims.newest() is None
    assert not claims.taken(1)
    made = [claims.claim() for _ in range(11)]
    assert [claim.epoch for claim in made] == list(range(1, 12))
    assert len({claim.owner for claim in made}) == 11
    assert claims.newest() == made[-1]
    assert claims.get(10) == made[9]
    assert claims.get(12) is None
    assert claims.taken(11)
    assert not claims.taken(12)


@pytest.mark.parametrize("store", ["file", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_racing_threads_get_distinct_epochs(store: ObjectStore) -> None:
    """Eight drivers that claim at once own eight different epochs without a gap."""
    start = threading.Barrier(8)

    def claim(_: int) -> Claim:
        start.wait()
        return Claims(store, PREFIX).claim()

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(claim, range(8)))
    assert sorted(claim.epoch for claim in made) == list(range(1, 9))
    assert Claims(store, PREFIX).newest() == max(made, key=lambda claim: claim.epoch)


def test_racing_processes_get_distinct_epochs(tmp_path: Path) -> None:
    """The same among processes that share nothing but a directory."""
    program = (
        "import sys; from pathlib import Path; from airflow_provider.storage.claims import Claims;"
        "from airflow_provider.storage.files import FileObjectStore;"
        "claims = Claims(FileObjectStore(Path(sys.argv[1])), 'p'); sys.stdin.read();"
        "print([claims.claim().epoch for _ in range(5)])"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    epochs: list[int] = []
    for child in children:
        assert child.stdout is not None
        epochs += [int(number) for number in child.stdout.read().strip("[]\n").split(",")]
        assert child.wait(30) == 0
        child.stdout.close()
    assert sorted(epochs) == list(range(1, 41))


def test_a_claim_whose_answer_was_lost_is_still_ours(files: FileObjectStore) -> None:
    """A repeated request meets our own object: no second epoch is taken."""

    class LosingStore(WatchedStore):
        def put_new(self, key: str, body: bytes) -> None:
            super().put_new(key, body)
            raise ObjectExists("as after a repeated request")

    claim = Claims(LosingStore(files), PREFIX).claim()
    assert claim.epoch == 1
    assert Claims(files, PREFIX).newest() == claim


def test_a_claim_that_cannot_be_read_still_holds_its_epoch(files: FileObjectStore) -> None:
    """Half a claim says nothing of its owner, but its epoch is taken."""
    bodies = [b'{"epoch": 1, "own', b"[]", b'{"epoch": 7}', b"", b"[" * 10**5, b'{"epoch": 1e999}']
    for epoch, body in enumerate(bodies, 1):
        files.put_new(f"{PREFIX}/claims/{epoch:08d}.json", body)
        newest = Claims(files, PREFIX).newest()
        assert newest is not None
        assert (newest.epoch, newest.owner) == (epoch, "")
        assert newest.terms == Lease(), "its driver is watched for as long as one that said nothing of it"
        assert not process_is_gone(newest)
    assert Claims(files, PREFIX).claim().epoch == 7
    files.put_new(f"{PREFIX}/claims/00000008.json", files.get(f"{PREFIX}/claims/00000007.json"))
    copied = Claims(files, PREFIX).newest()
    assert copied is not None
    assert (copied.epoch, copied.owner) == (8, "")


def test_what_is_no_claim_is_ignored(files: FileObjectStore) -> None:
    """Strange names in the folder make no epoch."""
    for name in ("notes.txt", "-3.json", "x.json", "٣.json"):
        files.put_new(f"{PREFIX}/claims/{name}", b"")
    assert Claims(files, PREFIX).newest() is None
    assert Claims(files, PREFIX).claim().epoch == 1


def test_jobs_do_not_see_each_others_claims(store: ObjectStore) -> None:
    """A job whose id begins like another's has its own epochs."""
    Claims(store, "jobs/a/@job").claim()
    assert Claims(store, "jobs/a/b/@job").newest() is None
    assert Claims(store, "jobs/a/b/@job").claim().epoch == 1


def test_a_success_is_acknowledged_once_and_keeps_its_first_report(store: ObjectStore) -> None:
    """Acknowledging again is harmless; the report can be read."""
    claims = Claims(store, PREFIX)
    assert claims.acknowledged(1) is None
    claims.acknowledge(1, {"state": "FINISHED", "vertices": []})
    claims.acknowledge(1, {"state": "other"}, try_number=2)
    assert claims.acknowledged(1) == 0
    assert claims.acknowledged(2) is None
    assert json.loads(store.get(f"{PREFIX}/acks/00000001.json")) == {"state": "FINISHED", "vertices": []}


@pytest.fixture
def claim(files: FileObjectStore) -> Claim:
    return Claims(files, PREFIX).claim()


def _claim_of_child(root: Path) -> tuple[subprocess.Popen[str], Claim]:
    program = (
        "import sys; from pathlib import Path; from airflow_provider.storage.claims import Claims;"
        "from airflow_provider.storage.files import FileObjectStore;"
        "Claims(FileObjectStore(Path(sys.argv[1])), 'child').claim(); print('claimed', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "claimed\n"
    claim = Claims(FileObjectStore(root), "child").newest()
    assert claim is not None
    return child, claim


def test_a_killed_process_is_gone_at_once_even_as_a_zombie(tmp_path: Path) -> None:
    """While it lives nothing is claimed; killed but not yet reaped, it is gone, and after that too."""
    child, claim = _claim_of_child(tmp_path)
    assert claim.pid == child.pid
    assert not process_is_gone(claim)
    child.send_signal(signal.SIGSTOP)
    assert not process_is_gone(claim)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still in the process table
    assert process_is_gone(claim)
    child.communicate()
    assert process_is_gone(claim)


def test_a_process_id_that_was_given_to_another_is_told_apart(claim: Claim) -> None:
    """Same pid, other start time: the owner has ended."""
    assert not process_is_gone(claim)
    assert process_is_gone(replace(claim, pid_started=claim.pid_started - 1))


@pytest.mark.parametrize(
    "change",
    [
        {"host": "another"},
        {"boot_id": "another boot"},
        {"boot_id": ""},
        {"pid": 0},
        {"pid_started": 0},
    ],
    ids=str,
)
def test_what_cannot_be_told_from_here_is_not_gone(claim: Claim, change: dict[str, object]) -> None:
    """Another host, boot or name space: the process id means nothing here."""
    other = replace(claim, **{"pid_started": claim.pid_started - 1, **change})  # type: ignore[arg-type]
    assert not process_is_gone(other)


def test_a_claim_says_which_dag_run_it_is_for(store: ObjectStore) -> None:
    """As far as that is known; claims of older releases say nothing."""
    claims = Claims(store, "jobs/a/@job")
    assert claims.claim(run="0@2026-11-23T01:00:00+00:00") == claims.newest()
    assert claims.get(1).run == "0@2026-11-23T01:00:00+00:00"  # type: ignore[union-attr]
    assert claims.claim().run == ""
