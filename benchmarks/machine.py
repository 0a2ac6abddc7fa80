"""What the figures were measured on; nothing that names the machine or its paths."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Return cores, memory, versions and the load before the measurement."""
    return {
        "measured_at": dt.datetime.now(dt.UTC).isoformat(timespec="minutes"),
        "cores": len(os.sched_getaffinity(0)),
        "processor": _from_proc("cpuinfo", "model name"),
        "memory": _from_proc("meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": load(),
        "java": _java(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("pyspark", "pyarrow", "pandas", "numpy", "boto3")},
    }


def load() -> list[float]:
    """Return the load averages over 1, 5 and 15 minutes: figures from a busy machine are worth little."""
    return [round(average, 2) for average in os.getloadavg()]


def _from_proc(file: str, name: str) -> str:
    for line in Path("/proc", file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else "java"
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    return said.splitlines()[0] if said else ""
