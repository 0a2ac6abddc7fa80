"""Which process is the driver's JVM; no Spark runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider.spark.jvm.driver_jvm import driver_jvm
from airflow_provider.storage.processes import jvm, jvm_above, process, process_tree
from tests.support.waiting import wait_until


def test_only_a_java_process_is_a_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adopts a Python driver whose JVM has ended is none, so that nobody names or kills it."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # other tests of this process may have started Spark
    assert process(os.getppid()) is not None
    assert driver_jvm() is None
    program = shutil.which("sleep")
    assert program is not None
    java = tmp_path / "java"
    java.symlink_to(program)
    with subprocess.Popen([java, "1000"]) as running:
        try:
            wait_until(lambda: jvm(running.pid) is not None, "the process has its name")
            assert jvm(running.pid) == process(running.pid)
        finally:
            running.kill()


def test_a_shell_may_stand_between(tmp_path: Path) -> None:
    """``PYSPARK_DRIVER_PYTHON`` may name a script that starts Python: the JVM above it is the driver's all the same."""
    shell = shutil.which("sh")
    assert shell is not None
    java = tmp_path / "java"
    java.symlink_to(shell)
    with subprocess.Popen([java, "-c", "sh -c 'sleep 1000; true'; true"]) as running:
        try:
            wait_until(lambda: len(process_tree(running.pid)) == 3, "the driver to be there")
            _, script, driver = process_tree(running.pid)
            wait_until(lambda: jvm(running.pid) is not None, "the process has its name")
            assert jvm_above(driver) == jvm_above(script) == process(running.pid)
            assert jvm_above(running.pid) is None
        finally:
            for pid in process_tree(running.pid):
                os.kill(pid, signal.SIGKILL)
