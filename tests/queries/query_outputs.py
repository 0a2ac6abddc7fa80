"""What a script leaves in its folder, compared with what the same script left in another one.

A folder with ``_SUCCESS`` is a Spark writer's: rows of Parquet files (with the columns that folders' names tell), lines
of the others. Any other file is the script's own: JSON, and lines of JSON. What begins with "_" or "." is left out.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tests.queries.compare import SAME_ENGINE, Tolerance, differences


def output_differences(expected: Path, got: Path, tolerance: Tolerance = SAME_ENGINE) -> list[str]:
    """Say in what two folders of outputs differ; an empty list if they hold the same."""
    wanted, found = _outputs(expected), _outputs(got)
    if wanted != found:
        return [f"outputs that differ: {sorted(wanted ^ found)}"]
    told = []
    for name in sorted(wanted):
        problems = _differences(expected / name, got / name, tolerance)
        told += [f"{name}: {problem}" for problem in problems]
    return told


def _outputs(folder: Path) -> set[str]:
    """Writers' folders and folders of lines as a whole, other files by themselves."""
    assert folder.is_dir(), f"there is no {folder}"
    paths = [path for path in folder.rglob("*") if not _private(path.relative_to(folder).parent)]
    written = {path.parent for path in paths if path.name == "_SUCCESS"}
    lines = {path.parent for path in paths if path.suffix == ".jsonl"}
    own = {
        path
        for path in paths
        if path.is_file() and not {*path.parents} & (written | lines) and not _private(Path(path.name))
    }
    return {str(path.relative_to(folder)) for path in written | lines | own}


def _private(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def _differences(expected: Path, got: Path, tolerance: Tolerance) -> list[str]:
    if expected.is_file():
        one, other = json.loads(expected.read_text()), json.loads(got.read_text())
        return [] if _same_json(one, other, tolerance.relative) else [f"expected {one}, got {other}"]
    if next(expected.rglob("*.parquet"), None) is not None:
        return differences(_parquet(expected), _parquet(got), tolerance)
    one, other = _lines(expected), _lines(got)
    return [] if one == other else [f"expected {one[:5]}, got {other[:5]}"]


def _parquet(folder: Path) -> pa.Table:
    table = ds.dataset(folder, format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()
    return table.select(sorted(table.column_names)) if len(set(table.column_names)) == table.num_columns else table


def _lines(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and not _private(Path(path.name))]
    return sorted(line for file in files for line in file.read_text().splitlines())


def _same_json(one: Any, other: Any, relative: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=relative) or one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_json(one[key], other[key], relative) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same_json(a, b, relative) for a, b in zip(one, other, strict=True))
    return bool(one == other)
