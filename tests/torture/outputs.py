"""What a job has left, read without Spark, and who wrote when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.orc
import pyarrow.parquet


def rows_of(out: Path) -> dict[str, Counter[str]]:
    """The rows of each output, as often as they are there; the folders of partitions are part of them."""
    found: dict[str, Counter[str]] = {}
    for file in sorted(out.rglob("part-*")):
        path = file.relative_to(out)
        if file.is_file() and not any(part.startswith(("_", ".")) for part in path.parts):
            rows = found.setdefault(path.parts[0], Counter())
            rows.update(f"{'/'.join(path.parts[1:-1])} {row}" for row in _content(file))
    return found


def _content(file: Path) -> list[object]:
    if file.suffix == ".parquet":
        return list(pyarrow.parquet.ParquetFile(file).read().to_pylist())
    if file.suffix == ".orc":
        return list(pyarrow.orc.read_table(file).to_pylist())
    return list(file.read_text().splitlines())


def differences(expected: dict[str, Counter[str]], found: dict[str, Counter[str]]) -> list[str]:
    """Say of each output how many rows are missing, and how many are there too often."""
    said = []
    for name in sorted({*expected, *found}):
        missing = (expected.get(name, Counter()) - found.get(name, Counter())).total()
        more = (found.get(name, Counter()) - expected.get(name, Counter())).total()
        if missing or more:
            said.append(f"{name}: {missing} rows missing, {more} too many")
    return said


@dataclass(frozen=True)
class Write:
    """A write that returned.

    :ivar pid: of the driver
    :ivar begun: seconds since the Unix epoch
    """

    name: str
    pid: int
    begun: float
    ended: float


def marks_of(witness: Path) -> list[tuple[str, str, int, float]]:
    """What drivers noted: ``begin`` or ``end``, of which write, in which process, when.

    A line that a driver was killed over is left out, and so is the one that the next driver has put behind it.
    """
    found = []
    for line in witness.read_text().splitlines() if witness.exists() else ():
        what, _, rest = line.partition(" ")
        mark = rest.rsplit(" ", 2)
        if len(mark) == 3 and mark[1].isdigit():
            found.append((what, mark[0], int(mark[1]), float(mark[2])))
    return found


def writes_of(witness: Path) -> list[Write]:
    """The writes that returned, in the order in which they began."""
    begun: dict[tuple[str, int], float] = {}
    found = []
    for what, name, pid, moment in marks_of(witness):
        if what == "begin":
            begun[name, pid] = moment
        elif (name, pid) in begun:
            found.append(Write(name, pid, begun.pop((name, pid)), moment))
    return sorted(found, key=lambda write: write.begun)


def two_drivers(writes: list[Write]) -> list[str]:
    """Say where a driver wrote while another one did, or after a later one had begun to.

    :param writes: of all drivers of the job
    """
    first: dict[int, float] = {}
    for write in writes:
        first.setdefault(write.pid, write.begun)
    return [
        f"process {write.pid} wrote {write.name!r} until {write.ended:.3f}, process {pid} from {begun:.3f} on"
        for write in writes
        for pid, begun in first.items()
        if pid != write.pid and first[write.pid] <= begun < write.ended
    ]
