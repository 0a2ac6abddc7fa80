"""A real driver that is killed while it fills what its script caches."""

from __future__ import annotations

import re
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from tests.spark.killed_jobs import KILLED, result
from tests.support.driver import JOBS, DriverHarness

pytestmark = [pytest.mark.integration, pytest.mark.process]

FILES, ROWS = 8, 6000
OPTIONS = {"recovery-points": "auto", "overhead-budget": "1e6"}


@pytest.mark.parametrize("level", ["MEMORY_AND_DISK_DESER", "DISK_ONLY"])
def test_a_frame_is_filled_on_from_where_it_was(driver: DriverHarness, level: str) -> None:
    """Killed twice: the partitions that were stored are put back each time, and the outputs are plain Spark's."""
    source, target = driver.folder / "source", driver.folder / "target"
    source.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(pa.table({"id": ids}), source / f"{number}.parquet")

    def attempt(fault: str = "") -> tuple[int, list[tuple[int, int]]]:
        outcome = driver.run("cached_frame.py", str(source), str(target), level, fault=fault, options=OPTIONS)
        told = re.findall(r"cached\(id, key, text\): (\d+) partitions put back, (\d+) to compute", outcome.log)
        return outcome.code, [(int(back), int(left)) for back, left in told]

    killed = f"{faults.AFTER_PARTITION_PUT}@4"
    assert attempt(killed) == (KILLED, [])
    first = frames_stored(driver)
    assert first
    code, put_back = attempt(killed)
    assert code == KILLED
    assert put_back == [(first, FILES - first)] or first == FILES
    second = frames_stored(driver)
    assert second >= first
    code, put_back = attempt()
    assert code == 0
    assert put_back == [(second, FILES - second)]
    plain = driver.folder / "plain"
    script = [driver.python, str(JOBS / "cached_frame.py"), str(source), str(plain), level]
    subprocess.run(script, env=driver.env(), check=True, timeout=120)
    for output in ("keys", "tenth"):
        assert result(target / output) == result(plain / output)


def frames_stored(driver: DriverHarness) -> int:
    """How many partitions of the frame are in the store."""
    vertices = driver.store.survivors()
    return sum(len(stored) for vertex, stored in vertices.items() if vertex.startswith("cached"))
