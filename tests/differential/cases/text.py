"""Fill in the templates of cases."""

from __future__ import annotations

from random import Random
from string import Template
from typing import Any

from tests.differential.case import SHARED, Case, body


def case(family: str, template: str, kind: str = SHARED, **values: Any) -> Case:
    """Return a case from an indented template in which ``$name`` stands for a value."""
    return Case(family, Template(body(template)).substitute({name: str(value) for name, value in values.items()}), kind)


def either(random: Random, *choices: str) -> str:
    return random.choice(choices)
