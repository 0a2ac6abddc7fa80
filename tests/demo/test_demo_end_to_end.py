from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider.cli.demo.demo_processes import all_processes, wait_until
from tests.support.quick_jvm import quick_jvms
from tests.support.quick_python import quick_airflow

pytestmark = [pytest.mark.airflow, pytest.mark.process]

COUNTED = re.compile(r"try 2 wrote (\d+) partitions of 'scored', exactly the missing ones; (\d+) .* were reused")
KILLED = re.compile(r"with (\d+) of 12 partitions of 'scored' stored")


class Demo:
    """A run of the demo in a process of its own, with all that it starts."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"TEST_OF_DEMO={secrets.token_hex(8)}"
        self.output = folder / "output.txt"
        self.temporary = folder
        name, _, value = self.mark.partition("=")
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "airflow_provider.cli", "demo", "--months", "1", "--stay"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | quick_airflow() | quick_jvms() | {name: value, "TMPDIR": str(self.temporary)},
            )

    def text(self) -> str:
        return self.output.read_text()

    def survivors(self) -> list[int]:
        def is_marked(pid: int) -> bool:
            try:
                return self.mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                return False

        return [pid for pid in all_processes() if is_marked(pid)]

    def left_behind(self) -> list[Path]:
        """The files that are there, but for its output and what drivers keep on a machine: classes they compiled."""
        files = (path for path in self.temporary.rglob("*") if path.is_file())
        return [path for path in files if path != self.output and path.suffix != ".jar"]


@pytest.fixture
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("demo"))
    yield demo
    demo.process.send_signal(signal.SIGTERM)
    try:
        demo.process.wait(60)
    finally:
        for pid in demo.survivors():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(1800)
def test_a_killed_driver_costs_only_what_was_not_stored_yet(demo: Demo) -> None:
    """The demo is the product's promise end to end: kill, retry by Airflow's scheduler, exactly the missing partitions.

    It exits with 0 only if the result also equals an uninterrupted run's and DuckDB's. Told to stay, it keeps Airflow
    up and says where the page is, until it is interrupted.
    """

    def stays() -> bool:
        return demo.process.poll() is not None or "Ctrl-C ends it." in demo.text()

    wait_until("the end of the story", stays, timeout=1700)
    page = re.search(r"^ +(http://\S+/plugin/spark_recovery)$", demo.text(), re.MULTILINE)
    assert page is not None, demo.text()
    with urllib.request.urlopen(page[1], timeout=30) as answer:
        assert answer.status == 200
    demo.process.send_signal(signal.SIGINT)
    code = demo.process.wait(60)

    text = demo.text()
    assert code == 0, text
    killed, counted = KILLED.search(text), COUNTED.search(text)
    assert killed is not None, text
    assert counted is not None, text
    stored, computed, reused = int(killed[1]), int(counted[1]), int(counted[2])
    assert 7 <= stored < 12
    assert computed == 12 - stored
    assert reused > stored, "clean and joined were complete and must be reused too"
    assert re.search(r"\d+ rows, equals an uninterrupted run", text)
    assert re.search(r"\d+ rows, equals DuckDB's answer", text)
    assert demo.survivors() == []
    assert demo.left_behind() == []


@pytest.mark.walk  # the one above ends by it, too, later on
@pytest.mark.timeout(600)
def test_ctrl_c_leaves_nothing_behind(demo: Demo) -> None:
    """Interrupted with Airflow on its feet, the demo ends everything that it started and removes its folder."""

    def is_up() -> bool:
        assert demo.process.poll() is None, demo.text()
        return "Airflow is up" in demo.text()

    wait_until("Airflow in the demo", is_up, timeout=500)
    assert len(demo.survivors()) > 3

    demo.process.send_signal(signal.SIGINT)

    assert demo.process.wait(60) == 130, demo.text()
    assert demo.survivors() == []
    assert demo.left_behind() == []
