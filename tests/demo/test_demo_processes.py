from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider.cli.demo.command import readable
from airflow_provider.cli.demo.demo_processes import (
    DemoError,
    Processes,
    all_processes,
    command_of,
    wait_until,
)
from airflow_provider.cli.demo.requirements import check_requirements, find_dags, java_version
from airflow_provider.storage.processes import process_tree

STUBBORN_GRANDCHILD = """
import signal, subprocess, sys, time
if sys.argv[1:] == ["child"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
else:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
time.sleep(600)
"""


@pytest.mark.integration
@pytest.mark.process
def test_stop_ends_also_what_left_its_process_group_and_ignores_sigterm(tmp_path: Path) -> None:
    """Whatever a started process starts in turn is ended with it; others' processes are not touched."""
    script = tmp_path / "grandchild.py"
    script.write_text(STUBBORN_GRANDCHILD)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    processes = Processes(tmp_path, os.environ)
    try:
        child = processes.start("child", [sys.executable, str(script)])
        wait_until("the grandchild", lambda: "up" in processes.log("child").read_text(), timeout=30)
        (_, grandchild) = process_tree(child.pid)
        assert os.getsid(grandchild) != os.getsid(child.pid)

        processes.stop()

        assert not {child.pid, grandchild} & {pid for pid in all_processes() if str(script) in command_of(pid)}
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        processes.stop()


@pytest.mark.process
def test_a_failed_process_is_told_with_its_log(tmp_path: Path) -> None:
    """Whoever reads of a failure is told where to read on."""
    processes = Processes(tmp_path, os.environ)
    process = processes.start("failing", [sys.executable, "-c", "import sys; print('why'); sys.exit(3)"])

    with pytest.raises(DemoError, match="failing ended with exit code 3") as failure:
        processes.finish("failing", process, timeout=60)

    assert failure.value.log is not None
    assert failure.value.log.read_text() == "why\n"


@pytest.mark.process
def test_a_service_that_ends_is_noticed(tmp_path: Path) -> None:
    """A server that dies is an error at the next check, not a time-out later."""
    processes = Processes(tmp_path, os.environ)
    service = processes.start("service", [sys.executable, "-c", ""])
    service.wait(60)

    with pytest.raises(DemoError, match="service has ended with exit code 0"):
        processes.check()


def test_waiting_in_vain_names_what_was_waited_for() -> None:
    """A time-out says what did not happen."""
    with pytest.raises(DemoError, match=r"for Godot, which did not come"):
        wait_until("Godot", lambda: None, timeout=0.01, pause=0.001)


@pytest.mark.process
@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_java_versions_are_understood(
    answer: str, version: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old and new styles of version numbers are read; anything else counts as no Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    java.chmod(0o755)

    assert java_version(str(tmp_path)) == version


@pytest.mark.process
def test_an_old_java_is_refused_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started, the user is told which Java was found and how to get a newer one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)

    with pytest.raises(DemoError, match=r"Java 11 is too old.*openjdk-17-jre-headless"):
        check_requirements(f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}")


def test_a_folder_without_the_example_is_refused(tmp_path: Path) -> None:
    """A wrong --dags is said at once."""
    with pytest.raises(DemoError, match=r"No flights_features\.py in .*--dags"):
        find_dags(str(tmp_path))


def test_airflows_task_log_is_shown_in_a_readable_form() -> None:
    """Of a record of Airflow's log people see time, level, message and error; other lines stay as they are."""
    record = {
        "timestamp": "2026-01-01T12:34:56.789Z",
        "level": "error",
        "event": "Task failed",
        "filename": "task_runner.py",
        "error_detail": [{"exc_type": "AirflowException", "exc_value": "no luck"}],
    }

    assert readable(json.dumps(record)) == "12:34:56 ERROR Task failed\n    AirflowException: no luck"
    assert readable("[1, 2]") == "[1, 2]"
    assert readable("Traceback") == "Traceback"
