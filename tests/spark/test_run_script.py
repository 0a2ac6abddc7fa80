"""The script inside its runner."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.spark.runner import set_up_logging
from airflow_provider.spark.user_script import find_application, run_script

LATE = """\
import pickle, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

class Note(str):
    pass

def later():
    Path(sys.argv[1]).write_text(pickle.loads(pickle.dumps(Note("written"))))

"""
TIMERS = "threading.Timer(0.2, lambda: threading.Timer(0.1, later).start()).start()\n"
POOL = "pool = ThreadPoolExecutor(1); pool.submit(time.sleep, 0.3); pool.submit(later)\n"


def _goes_on() -> None:
    """Stop no attempt: it owns its job."""


def _success() -> int:
    """Conclude an attempt as a success."""
    return 0


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script in this process changes comes back."""
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.mark.parametrize("threads", [TIMERS, POOL, POOL + "del pool\n"], ids=["timers", "pool", "dropped pool"])
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_a_script_has_ended_when_its_threads_have(tmp_path: Path, threads: str, end: str) -> None:
    """Python waits for them at its end, and pools do what was submitted to them; the attempt waits, too, whatever the
    script ends with: they may still write, and then the fence and the event store are needed. They find what the
    script has defined where pickle looks for it.
    """
    script, target = tmp_path / "late.py", tmp_path / "target"
    script.write_text(LATE + threads + end)
    error = run_script(script, [str(target)], _goes_on, _success)
    assert target.read_text() == "written"
    assert (error is None) == (not end)


@pytest.mark.parametrize("how", ["dictConfig({'version': 1})", "fileConfig(sys.argv[1])"])
def test_a_script_that_sets_up_logging_silences_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """Both of Python's ways disable every logger that is there, which would take what an attempt says with them."""
    script, config = tmp_path / "configured.py", tmp_path / "logging.ini"
    script.write_text(f"import logging.config, sys\nlogging.config.{how}\n")
    config.write_text(
        "[loggers]\nkeys=root\n[handlers]\nkeys=\n[formatters]\nkeys=\n[logger_root]\nhandlers=\nlevel=INFO\n"
    )
    logger = logging.getLogger("airflow_provider")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    monkeypatch.setattr(logger, "level", logger.level)
    set_up_logging()
    assert run_script(script, [str(config)], _goes_on, _success) is None
    logging.getLogger("airflow_provider.spark.context").warning("heard")
    assert "WARNING spark-recovery: heard" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('')", 1),
        ("sys.exit('why')", 1),
        ("raise ValueError", 1),
    ],
)
def test_a_process_that_a_script_forks_ends_with_the_script(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], end: str, code: int
) -> None:
    """As in plain Python; it concludes nothing in its parent's name."""
    script, target = tmp_path / "forking.py", tmp_path / "codes"
    script.write_text(
        "import os, sys\nfrom pathlib import Path\nchild = os.fork()\n"
        f"if not child:\n    print('from the child')\n    {end}\n"
        "else:\n    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "    Path(sys.argv[1]).write_text(str(ended))\n"
    )
    process = os.getpid()
    try:
        assert run_script(script, [str(target)], _goes_on, _success) is None
    finally:
        if os.getpid() != process:
            os._exit(99)
    assert target.read_text() == str(code)
    assert capfd.readouterr().out == "from the child\n"


@pytest.mark.parametrize("fails", ["", "raise KeyError('hook')"])
def test_the_scripts_own_hook_is_told_of_its_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], fails: str
) -> None:
    """As in plain Python, so that whatever reports errors gets it; the traceback begins in the script. A hook that
    fails is told of, too.
    """
    script = tmp_path / "hooked.py"
    script.write_text(
        "import os, sys\ndef hook(kind, error, frames):\n"
        "    print('told', kind.__name__, error, frames.tb_frame.f_code.co_filename == __file__, flush=True)\n"
        f"    {fails}\nsys.excepthook = hook\nif not (child := os.fork()):\n    raise ValueError('why')\n"
        "os.waitpid(child, 0)\n"
    )
    assert run_script(script, [], _goes_on, _success) is None
    out, err = capfd.readouterr()
    assert out == "told ValueError why True\n"
    assert [text for text in ("KeyError: 'hook'", "ValueError: why") if text in err] == (
        ["KeyError: 'hook'", "ValueError: why"] if fails else []
    )


def test_a_script_behind_a_link_finds_what_lies_beside_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """First where the link leads, as in Python; then beside the link, where a cluster puts the files of a job."""
    for folder, module in [("real", "own_first"), ("linked", "own_first"), ("linked", "own_second")]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{module}.py").write_text(f"place = {folder!r}")
    (tmp_path / "real" / "job.py").write_text(
        "import own_first, own_second\nprint(own_first.place, own_second.place, __file__.split('/')[-2])"
    )
    (tmp_path / "linked" / "job.py").symlink_to(tmp_path / "real" / "job.py")
    assert run_script(tmp_path / "linked" / "job.py", [], _goes_on, _success) is None
    assert capfd.readouterr().out == "real linked linked\n"
    for module in ("own_first", "own_second"):
        del sys.modules[module]


def test_a_script_that_the_user_may_not_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In one line, as one that does not exist: before anything is claimed, and also where its folder is closed."""
    monkeypatch.chdir("/")
    (tmp_path / "closed").mkdir(mode=0o700)
    closed = tmp_path / "closed" / "job.py"
    closed.write_text("")
    unreadable = tmp_path / "job.py"
    unreadable.touch(mode=0o000)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder not in (Path("/"), Path("/tmp")):
            folder.chmod(0o755)
    request.getfixturevalue("nobody")
    with pytest.raises(ConfigurationError, match=r"does not exist.*user may read it"):
        find_application(str(closed))
    with pytest.raises(ConfigurationError, match=r"cannot be read.*user may read it"):
        find_application(str(unreadable))


@pytest.mark.parametrize(
    ("status", "recorded", "concluded", "ended"), [(0, True, 0, 0), (0, True, 1, 1), (3, False, 0, 3)]
)
def test_a_script_that_ends_its_process_has_succeeded_if_its_status_says_so(
    tmp_path: Path, status: int, recorded: bool, concluded: int, ended: int
) -> None:
    """``os._exit`` leaves out all that comes after it, so a success is recorded before, unless the attempt has failed
    all the same; one of a forked process is not the attempt's.
    """
    script, record = tmp_path / "leaving.py", tmp_path / "record"
    script.write_text(
        f"import os\nif not (child := os.fork()):\n    os._exit(0)\nos.waitpid(child, 0)\nos._exit({status})\n"
    )

    def left() -> int:
        with record.open("a") as file:
            file.write("success\n")
        return concluded

    child = os.fork()
    if not child:
        run_script(script, [], _goes_on, left)
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == ended
    assert (record.read_text() if record.exists() else "") == ("success\n" if recorded else "")


@pytest.mark.parametrize("code", ["0.0", "[]"])
def test_an_exit_with_a_value_that_is_no_integer_fails(tmp_path: Path, code: str) -> None:
    """As in plain Python, which takes only its own integers for a status, and not NumPy's 0, say."""
    script = tmp_path / "exits.py"
    script.write_text(f"import sys\nsys.exit({code})\n")
    assert isinstance(run_script(script, [], _goes_on, _success), SystemExit)
