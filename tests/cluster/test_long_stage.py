"""A stage with more map tasks than the cluster has cores: what the first of them have written is kept while it runs."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.driver import DriverHarness
from tests.support.standalone import EXECUTOR_SETTINGS, StandaloneCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.process]

FILES, ROWS = 32, 25000


def test_map_outputs_are_stored_while_the_script_has_tasks_for_every_core(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """The script's own tasks come first, but not to the end of the stage: a driver killed in it leaves map outputs."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(pa.table({"id": ids}), source / f"{number}.parquet")
    settings = {"spark.master": cluster.url, "spark.ui.showConsoleProgress": "true", **EXECUTOR_SETTINGS}
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store", settings=settings)
    arguments, options = (str(source), str(target)), {"recovery-points": "auto"}
    running = driver.start("slow_map_tasks.py", *arguments, options=options)
    try:
        wait_until(lambda: stored(driver) or running.poll() is not None, "map outputs are stored")
    finally:
        os.kill(running.pid, signal.SIGKILL)
        log, _ = running.communicate()
    assert running.returncode == -signal.SIGKILL, log
    progress = re.findall(rf"\((\d+) \+ (\d+)\) / {FILES}\b", log)  # of tasks that have ended, and that run
    assert int(progress[-1][0]) + int(progress[-1][1]) < FILES - 1
    kept = len(stored(driver))
    again = driver.run("slow_map_tasks.py", *arguments, options=options)
    assert again.code == 0, again.log
    assert again.put_back("shuffle(id)") == [(kept, FILES - kept)], again.log
    assert sorted(pq.read_table(target)["id"].to_pylist()) == list(range(FILES * ROWS))


def stored(driver: DriverHarness) -> list[int]:
    """The map outputs in the store, by index."""
    return [each.index for outputs in driver.store.survivors().values() for each in outputs]
