"""What a mechanism of the seeds is: what the seed says, what is done here, and how it is switched off.

A switch is a patch of the package that is applied to a copy, never to the package itself, and names tests that fail
under it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from airflow_provider.core.digest import digest


@dataclass(frozen=True)
class Edit:
    """One replacement.

    :ivar file: below ``airflow_provider``
    :ivar old: stands in it exactly once, so that no patch outlives what it patches
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Switch:
    """One way to take a mechanism away.

    :ivar without: what happens then, in a few words
    :ivar tests: tests that fail then, below ``tests``; ``[…]`` behind a name chooses one case
    :ivar error: the class that the code under test fails with, where no assertion fails
    """

    without: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    error: str = ""

    @property
    def digest(self) -> str:
        """Tells whether a result is that of this switch as it is now."""
        return digest(json.dumps(asdict(self), sort_keys=True))[:16]


@dataclass(frozen=True)
class Row:
    """One mechanism.

    :ivar number: of the row in the seeds' list
    :ivar modules: where it is, below ``airflow_provider``, with a name in it where that helps
    :ivar missing: what the seed has and this has not, and why; empty text if there is nothing
    """

    number: int
    seed: str
    here: str
    modules: tuple[str, ...]
    switches: tuple[Switch, ...]
    missing: str = ""
