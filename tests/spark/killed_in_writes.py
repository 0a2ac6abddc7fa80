"""A job whose writes are killed while their tasks commit, attempt by attempt, and what a reader sees of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.support.driver import DriverHarness, Outcome

KILLED = -9
ONCE = list(range(400))
OLD, OTHER_PARTITION = 9000, 9007
"""Rows that are there before an overwrite; of the second it is in a partition that is not written."""


class Job:
    """Attempts at ``jobs/killed_writes.py``."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        self.target, self.die, self.kinds = folder / "out", folder / "die", kinds
        settings = {"spark.sql.warehouse.dir": str(self.target / "warehouse")}
        if any(kind.startswith("hive") for kind in kinds):
            settings["spark.sql.catalogImplementation"] = "hive"
        quick_derby = {"JAVA_TOOL_OPTIONS": "-Dderby.system.durability=test"}
        self.driver = DriverHarness(folder, f"file://{folder}/store", settings=settings, environment=quick_derby)
        self.die.mkdir()
        for kind in kinds:
            (self.die / kind).touch()
            if any(word in kind for word in ("over", "dynamic")):
                self._fill(kind)

    def _fill(self, kind: str) -> None:
        """Put rows where an overwrite goes, as another writer would."""
        parts = any(word in kind for word in ("dynamic", "static", "part"))
        for folder, row in (("half=0", OLD), ("half=7", OTHER_PARTITION)) if parts else (("", OLD),):
            place = self.target / kind / folder
            place.mkdir(parents=True)
            table = pa.table({"id": [row]} if parts else {"id": [row], "half": [0]})
            pq.write_table(table, place / "old-part.parquet")

    def run(self, **options: str) -> Outcome:
        return self.driver.run("killed_writes.py", str(self.target), str(self.die), *self.kinds, options=options)

    def place(self, kind: str) -> Path:
        managed = self.target / "warehouse" / kind
        return managed if managed.exists() else self.target / kind

    def ids(self, kind: str) -> list[int]:
        """The rows that a reader sees, in order."""
        found = (file for pattern in ("part-*", "old-part*") for file in self.place(kind).rglob(pattern))
        files = [file for file in found if not _hidden(file.relative_to(self.target))]
        if kind.startswith("rdd"):
            return sorted(int(line) for file in files for line in file.read_text().splitlines())
        return sorted(ds.dataset(files, format="parquet").to_table(["id"])["id"].to_pylist()) if files else []

    def leftovers(self, kind: str) -> list[Path]:
        return [path for path in self.place(kind).iterdir() if path.name.startswith(("_temporary", ".spark-staging"))]


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def expected(kind: str) -> list[int]:
    """A static overwrite takes all that was there; others take what is in the partitions that they write."""
    kept = kind.startswith(("dynamic", "insert_over_dynamic", "sql_over_dynamic", "sql_over_one_part"))
    return [*ONCE, OTHER_PARTITION] if kept else ONCE
