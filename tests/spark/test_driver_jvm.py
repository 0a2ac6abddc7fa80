"""Which process is the driver's JVM; no Spark runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider.spark.jvm.driver_jvm import driver_jvm
from airflow_provider.storage.processes import jvm, process
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
