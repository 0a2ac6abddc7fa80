"""The tables that generated scripts read: a few thousand rows as Parquet, CSV and JSON, the same ones for each seed."""

from __future__ import annotations

import csv
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FACTS, DIMS, EVENTS, LOGS = 3000, 100, 1200, 600

_FACTS = pa.schema(
    [
        ("id", pa.int32()),
        ("k", pa.int32()),
        ("g", pa.string()),
        ("v", pa.int64()),
        ("d", pa.decimal128(12, 2)),
        ("t", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("n", pa.int32()),
        ("arr", pa.list_(pa.int32())),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)


def make_data(folder: Path) -> Path:
    """Write the tables below *folder*, unless they are there."""
    if (folder / "complete").exists():
        return folder
    random = Random(7)
    _parquet(folder / "facts", [_fact(random, number) for number in range(FACTS)], _FACTS, 4)
    dims = [{"k": k, "name": f"dim#{k:05}", "cat": f"c{k % 7}", "w": random.randint(1, 50)} for k in range(DIMS)]
    schema = pa.schema([("k", pa.int32()), ("name", pa.string()), ("cat", pa.string()), ("w", pa.int32())])
    _parquet(folder / "dims", dims, schema, 1)
    _events(folder / "events", random)
    _logs(folder / "logs", random)
    (folder / "complete").touch()
    return folder


def _fact(random: Random, number: int) -> dict[str, Any]:
    k = 7 if random.random() < 0.3 else random.randrange(130)  # skewed; thirty keys have no row in dims
    return {
        "id": number,
        "k": k,
        "g": None if random.random() < 0.05 else f"g{random.randrange(12)}",
        "v": random.randrange(-5000, 5000),
        "d": Decimal(random.randrange(0, 10**6)) / 100,
        "t": dt.date(2020, 1, 1) + dt.timedelta(days=random.randrange(1000)),
        "ts": dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=random.randrange(10**8)),
        "s": f"Customer#{random.randrange(300):09}",
        "b": random.random() < 0.5,
        "n": None if random.random() < 0.2 else random.randrange(20),
        "arr": [random.randrange(9) for _ in range(random.randrange(5))],
        "st": {"a": random.randrange(50), "b": random.choice("xyz")},
        "m": [(key, random.randrange(9)) for key in sorted(random.sample("pqrs", random.randrange(4)))],
    }


def _parquet(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema, files: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    share = -(-len(rows) // files)
    for part in range(files):
        table = pa.Table.from_pylist(rows[part * share : (part + 1) * share], schema=schema)
        pq.write_table(table, folder / f"part-{part}.parquet")


def _events(folder: Path, random: Random) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(3):
        with (folder / f"part-{part}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["eid", "k", "kind", "amount", "day"])
            for number in range(EVENTS // 3):
                day = dt.date(2021, 1, 1) + dt.timedelta(days=random.randrange(200))
                kind = random.choice(["view", "click", "buy", "back"])
                amount = f"{random.randrange(10**5) / 100:.2f}"
                writer.writerow([part * EVENTS // 3 + number, random.randrange(110), kind, amount, day.isoformat()])


def _logs(folder: Path, random: Random) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(2):
        with (folder / f"part-{part}.json").open("w") as file:
            for number in range(LOGS // 2):
                line = {
                    "lid": part * LOGS // 2 + number,
                    "level": random.choice(["info", "warn", "error"]),
                    "tags": random.sample(["a", "b", "c", "d"], random.randrange(4)),
                    "props": {"host": f"h{random.randrange(5)}", "code": random.randrange(600)},
                    "k": random.randrange(100),
                }
                file.write(json.dumps(line) + "\n")
