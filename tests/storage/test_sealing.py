"""With an integrity secret, nobody without it can change what a reader of the store believes."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from airflow_provider.core.errors import ConfigurationError, CorruptObject, RecoveryError
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.files import FileObjectStore, file_uri
from airflow_provider.storage.liveness import Life, Liveness
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.sealing import SEAL_SIZE, Seal, SealedStore
from airflow_provider.storage.uris import open_store
from tests.storage.conftest import PREFIX
from tests.storage.plain_driver import JOB, PARTITIONS, Rows, Script, is_right, request_for, run_job
from tests.storage.writing_attempts import Attempt, block_key, block_keys
from tests.support.stores import WatchedStore

SECRET, OTHER = "s" * 32, "another secret that nobody has guessed"
NOT_TRUSTED = "is not sealed with this integrity secret"


def sealed(store: ObjectStore, secret: str = SECRET) -> SealedStore:
    seal = Seal.parse(secret)
    assert seal is not None
    return SealedStore(store, seal)


def attempt(root: Path, secret: str = "") -> Rows:
    """One attempt at the small job, to its end; that the first one is over is known."""
    uri = file_uri(root)
    request = replace(request_for(uri, {}, timeout="100 ms"), previous_lost=1)
    return run_job(open_store(uri, integrity_secret=secret), request, root.parent / "computed")


def computed_by(root: Path, epoch: int) -> int:
    """How many partitions an attempt has computed."""
    return sum(line.startswith(f"{epoch} ") for line in (root.parent / "computed").read_text().splitlines())


@pytest.fixture
def ended_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """The root of a store in which an attempt has ended before the last vertex, written with a secret or without."""

    def make(secret: str) -> Path:
        vertex = Script.vertex

        def until_the_last(self: Script, name: str) -> bool:
            if name == "c":
                raise RecoveryError("ended here")
            return vertex(self, name)

        with monkeypatch.context() as patch:
            patch.setattr(Script, "vertex", until_the_last)
            with pytest.raises(RecoveryError, match="ended here"):
                attempt(tmp_path / "store", secret)
        return tmp_path / "store"

    return make


class Altered(FileObjectStore):
    """Answers with other bytes than those of the file."""

    content = b""

    def get(self, key: str) -> bytes:
        return self.content


def objects(root: Path) -> list[str]:
    return [info.key for info in FileObjectStore(root).list("")]


# -- the seal itself ------------------------------------------------------------------------------------------------


@pytest.mark.few(1)
def test_what_is_sealed_reads_back(store: ObjectStore, tmp_path: Path) -> None:
    """In every store: small objects, and files of any size, whose bytes and sizes are those that were written."""
    keeping, source, target = sealed(store), tmp_path / "source", tmp_path / "target"
    check_store(keeping)
    keeping.put_new("small", b"first")
    keeping.put("small", b"second")
    keeping.put("empty", b"")
    assert (keeping.get("small"), keeping.get("empty")) == (b"second", b"")
    assert store.get("small").startswith(b"second\n")
    for size in (0, 1, 8 * 2**20, 16 * 2**20, 24 * 2**20 + 5):
        content = random.Random(size).randbytes(size)
        source.write_bytes(content)
        for way in (keeping.upload, keeping.share):
            way(f"large/{size}", source)
            for back in (keeping.download, keeping.borrow):
                target.unlink(missing_ok=True)
                back(f"large/{size}", target)
                assert target.read_bytes() == content
        assert [info.size for info in keeping.list(f"large/{size}")] == [size]
    assert source.stat().st_nlink == 1, "nobody who writes to the store reaches the file that Spark still reads"


def test_any_change_of_any_object_is_found(ended_early: Callable[[str], Path], tmp_path: Path) -> None:
    """Each byte of each object changed, each object cut at each place, made longer, or put in another one's place."""
    root = ended_early(SECRET)
    plain, copy = Altered(root), tmp_path / "copy"
    keeping, keys = sealed(plain), objects(root)
    kinds = {key.removeprefix(f"{JOB.prefix}/").partition("/")[0] for key in keys}
    assert {"claims", "heartbeats", "events", "snapshots", "partitions"} <= kinds

    def refuse(key: str, content: bytes) -> None:
        plain.content = content
        with pytest.raises(CorruptObject, match=NOT_TRUSTED):
            keeping.get(key)

    contents = {key: plain.path_of(key).read_bytes() for key in keys}
    for key, stored in contents.items():
        for position in range(len(stored)):
            refuse(key, stored[:position] + bytes([stored[position] ^ 1]) + stored[position + 1 :])
            refuse(key, stored[:position])
        for longer in (stored + b"\0", b"\0" + stored, stored + stored[-SEAL_SIZE:], stored + stored):
            refuse(key, longer)
        plain.content = stored
        assert keeping.get(key) == stored[:-SEAL_SIZE]
        keeping.download(key, copy)
        assert copy.read_bytes() == stored[:-SEAL_SIZE]
        copy.unlink()
        plain.path_of(key).write_bytes(b"?" + stored[1:])
        with pytest.raises(CorruptObject, match=NOT_TRUSTED):
            keeping.download(key, copy)
        assert not copy.exists()
    for one, other in permutations(keys, 2):
        refuse(one, contents[other])


def test_an_object_of_another_job_is_none_of_this_one(tmp_path: Path) -> None:
    """The seal holds under its own key only: the same name in another job is another key."""
    keeping = sealed(FileObjectStore(tmp_path / "store"))
    keeping.put_new("jobs/a/@job/events/0000000001.jsonl", b"told")
    keeping.plain.put_new("jobs/b/@job/events/0000000001.jsonl", keeping.plain.get(*objects(tmp_path / "store")))
    with pytest.raises(CorruptObject):
        keeping.get("jobs/b/@job/events/0000000001.jsonl")


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    """Each has 32 characters at least; the error does not repeat it."""
    assert Seal.parse("") is None
    assert Seal.parse(" , ") is None
    for text in ("too short", f"{SECRET},too short"):
        with pytest.raises(ConfigurationError, match="token_hex") as error:
            Seal.parse(text)
        assert "too short" not in str(error.value)
        assert SECRET not in str(error.value)
    assert SECRET not in repr(vars(sealed(FileObjectStore(Path("/nowhere")))))


# -- a job ----------------------------------------------------------------------------------------------------------


def test_a_retry_with_the_secret_goes_on(ended_early: Callable[[str], Path]) -> None:
    """What is sealed is reused as what is not: the retry computes the last vertex alone."""
    root = ended_early(SECRET)
    assert is_right(attempt(root, SECRET))
    assert computed_by(root, 2) == PARTITIONS


@pytest.mark.integration
def test_whatever_object_is_harmed_the_rows_are_right(
    ended_early: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each object of a job in turn: a byte changed. The retry says so if it reads it, and ends with the right rows."""
    root, seed = ended_early(SECRET), random.Random(17)
    said = {}
    for number, key in enumerate(objects(root)):
        folder = tmp_path / f"harmed-{number}"
        shutil.copytree(root, folder / "store")
        path = folder / "store" / key
        content, position = path.read_bytes(), seed.randrange(path.stat().st_size - SEAL_SIZE)
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        caplog.clear()
        assert is_right(attempt(folder / "store", SECRET)), key
        said[key] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    for key, lines in said.items():
        kind = key.removeprefix(f"{JOB.prefix}/").partition("/")[0]
        if kind == "partitions":
            assert lines == [
                f"The stored partition {key.removeprefix(f'{JOB.prefix}/')} is damaged; it is computed again."
            ]
        assert len(lines) <= 3, (key, lines)


@pytest.mark.parametrize(("before", "after"), [("", SECRET), (OTHER, SECRET)], ids=["no secret before", "another one"])
def test_what_is_not_sealed_with_this_secret_is_not_trusted(
    ended_early: Callable[[str], Path], before: str, after: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The job starts afresh, in one line that says why, and the retry after that goes on as usual."""
    root = ended_early(before)
    caplog.clear()
    assert is_right(attempt(root, after))
    assert computed_by(root, 2) == 4 * PARTITIONS
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith("RECOVERY ABANDONED: what the event store holds of the job is not sealed with this")
    graph = JobEventLog(open_store(file_uri(root), integrity_secret=after), JOB.prefix).replay().graph
    assert graph.attempts[2].abandoned
    assert graph.base_epoch == 2
    assert not graph.abandoned


def test_a_secret_can_be_changed_without_losing_work(ended_early: Callable[[str], Path]) -> None:
    """While the old one stands behind the new one, what it has sealed counts; new objects have the new one's seal."""
    root = ended_early(OTHER)
    assert is_right(attempt(root, f"{SECRET},{OTHER}"))
    assert computed_by(root, 2) == PARTITIONS
    new = open_store(file_uri(root), integrity_secret=SECRET)
    claims = Claims(new, JOB.prefix)
    assert [bool(claim.owner) for epoch in (1, 2) if (claim := claims.get(epoch))] == [False, True]


def test_who_has_no_secret_is_told_so(ended_early: Callable[[str], Path]) -> None:
    """Driver, event log and claims each say in one line what is missing and where it belongs; nothing is written."""
    root = ended_early(SECRET)
    before = objects(root)
    plain = open_store(file_uri(root))
    for look in (
        lambda: attempt(root),
        lambda: Claims(plain, JOB.prefix).newest(),
        lambda: JobEventLog(plain, JOB.prefix).replay(),
        lambda: JobEventLog(plain, JOB.prefix).load(),
    ):
        with pytest.raises(ConfigurationError, match=f"integrity_secret.*{INTEGRITY_SECRET}"):
            look()
    assert objects(root) == before


def test_the_environment_brings_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To drivers, executors and the command line; a secret that is given counts more."""
    monkeypatch.setenv(INTEGRITY_SECRET, SECRET)
    own, given = open_store(file_uri(tmp_path)), open_store(file_uri(tmp_path), integrity_secret=OTHER)
    own.put_new("object", b"told")
    assert sealed(FileObjectStore(tmp_path)).get("object") == b"told"
    with pytest.raises(CorruptObject):
        given.get("object")


def test_a_forged_heartbeat_names_no_process_and_no_end(files: FileObjectStore) -> None:
    """It is a sign of life as long as it changes; no last word is believed, and no process is ended for it."""
    keeping, now = sealed(files), [0.0]
    claim = Claims(keeping, PREFIX).claim()
    liveness = Liveness(keeping, PREFIX, claim, clock=lambda: now[0])
    key = f"{PREFIX}/heartbeats/00000001.json"
    numbers = set()
    for state, life in (("FINISHED", Life.WATCHING), ("FAILED", Life.ALIVE)):
        files.put(key, b'{"beat": 1, "state": "%s", "jvm_pid": 1, "jvm_started": 1}' % state.encode())
        assert liveness.look() is life
        assert (liveness.word, liveness.beat.jvm) == ("", None)
        numbers.add(liveness.beat.number)
    assert len(numbers) == 2, "who compares numbers sees that it has changed"
    now[0] += liveness.patience
    assert liveness.look() is Life.SILENT


def test_a_forged_block_in_the_writers_way_is_no_successor(files: FileObjectStore) -> None:
    """One that somebody lays where a driver begins is passed over, and said to be not sealed."""
    keeping = sealed(files)

    def plant(operation: str, key: str) -> None:
        if operation == "put_new" and "/events/" in key and not block_keys(files):
            files.put(block_key(1), b"forged")

    writing = Attempt(WatchedStore(keeping, plant))
    graph: ExecutionGraph = writing.begin()
    writing.writer.close()
    assert block_keys(files) == [block_key(1), block_key(2)]
    assert [problem for problem in graph.problems if "not sealed" in problem]
