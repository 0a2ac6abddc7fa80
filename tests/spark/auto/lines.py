"""Files of lines, of which each is read by a map task of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def written(folder: Path, files: Mapping[str, Iterable[str]]) -> Path:
    """Write files of CSV by name; return *folder*, which has nothing else."""
    folder.mkdir()
    for name, lines in files.items():
        (folder / f"{name}.csv").write_text("".join(f"{line}\n" for line in lines))
    return folder


def task_for(size: int) -> dict[str, str]:
    """Return the settings by which a map task reads so many bytes, of one file or of several."""
    return {
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.files.maxPartitionBytes": str(size),
    }
