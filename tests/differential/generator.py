"""Makes cases from a seed: the same ones, in the same order, for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.differential.case import Case
from tests.differential.cases import (
    caches,
    draws,
    driver_side_work,
    errors,
    functions,
    libraries,
    newer,
    programs,
    sql,
    writing,
)

Maker = Callable[[Random], Case]

FAMILIES: dict[str, Maker] = {
    name: maker
    for module in (programs, sql, functions, draws, caches, writing, errors, driver_side_work, libraries, newer)
    for name, maker in module.FAMILIES.items()
}
WEIGHTS = {
    "program": 34,
    "sql": 13,
    "sql_ordered": 4,
    "sql_near": 2,
    "python_function": 8,
    "draw": 8,
    "cache": 3,
    "change": 6,
    "write": 6,
    "table": 5,
    "error": 3,
    "rdd": 2,
    "observed": 1,
    "thread": 2,
    "stop": 1,
    "statistics": 2,
    "learning": 1,
    "pandas": 1,
    "newer": 4,
}
"""How often each family is chosen, out of about a hundred."""


def generate(seed: int, count: int) -> list[Case]:
    """Return *count* cases of different texts, of each family at least one."""
    random = Random(f"cases {seed}")
    found: dict[str, Case] = {}
    names, weights = list(FAMILIES), [WEIGHTS[name] for name in FAMILIES]
    while len(found) < count:
        # Of a short run the first cases are of each family once; after that chance decides.
        family = names[len(found)] if len(found) < len(names) else random.choices(names, weights)[0]
        case = FAMILIES[family](random)
        if case.name in found:  # some have few forms: again, in another script with other settings
            case = replace(case, body=f"# form {len(found)}\n{case.body}")
        found[case.name] = case
    return list(found.values())
