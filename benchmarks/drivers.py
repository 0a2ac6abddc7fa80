"""The surroundings of real drivers: the same for all of them, so that their times can be compared."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from airflow_provider.core.faults import FAULT


def environment(folder: Path, fault: str = "") -> dict[str, str]:
    """Return the environment of a driver on all cores.

    :param folder: for Spark's local files
    :param fault: a fault point at which it dies
    """
    settings = {
        "spark.master": f"local[{len(os.sched_getaffinity(0))}]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.local.dir": str(folder / "spark-local"),
        "spark.ui.showConsoleProgress": "false",
    }
    flags = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
    surroundings = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")))),
    }
    for name in (FAULT, "PYTHONDONTWRITEBYTECODE"):  # what is installed has its bytecode beside it
        surroundings.pop(name, None)
    return {**surroundings, FAULT: fault} if fault else surroundings
