"""What a write has left: files, folders of partitions, rows; read without Spark, so that nothing stands between."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from canonical import rows_record


def written_record(path: Path, *, ordered: bool, names: bool = False) -> dict[str, Any]:
    """Files by folder, ending and number; rows as a multiset, or in the order of the files' names.

    :param names: whether the numbers in the files' names count (a file of each partition of the plan)
    """
    if not path.exists():
        return {"exists": False}
    files = sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))
    counts = Counter(f"{file.relative_to(path).parent}/*{_ending(file)}" for file in files)
    rows: list[Any] = []
    schemas = set()
    for file in files:
        folder = str(file.relative_to(path).parent)
        content, schema = _content(file)
        schemas.add(schema)
        rows += [[folder, row] for row in content]
    success = (path / "_SUCCESS").exists()
    record: dict[str, Any] = {
        "success": success,
        # A write that fails cleans up after itself while its last tasks may still be at work.
        "left over": sorted(str(file.relative_to(path)) for file in path.rglob("_temporary")) if success else [],
        "schemas": sorted(schemas),
        "rows": rows_record(rows, ordered),
    }
    layout: dict[str, Any] = {"files": dict(sorted(counts.items()))}
    if names:
        layout["numbers"] = sorted(file.name.split("-")[1] for file in files if file.name.startswith("part-"))
    return {**record, "layout": layout}


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.parts)


def _ending(file: Path) -> str:
    bucket = file.stem.split("_")[-1].split(".")[0] if "_0" in file.name else ""
    return (f"_{bucket}" if bucket.isdigit() else "") + "".join(file.suffixes[-2:])


def _content(file: Path) -> tuple[list[Any], str]:
    import pyarrow.orc
    import pyarrow.parquet

    if file.suffix == ".parquet":
        table = pyarrow.parquet.ParquetFile(file).read()
        metadata = {key: value for key, value in (table.schema.metadata or {}).items() if b"schema" in key}
        described = table.schema.remove_metadata().to_string() + json.dumps(
            sorted(value.decode() for value in metadata.values())
        )
        return table.to_pylist(), described
    if file.suffix == ".orc":
        table = pyarrow.orc.read_table(file)
        return table.to_pylist(), table.schema.remove_metadata().to_string()
    return file.read_text().splitlines(), ""
