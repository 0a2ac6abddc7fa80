"""The order of a long run: every script plain and recovered, and kills spread over them until there are enough."""

from __future__ import annotations

from collections.abc import Collection

from tests.differential.bundle import Bundle, bundles
from tests.differential.differential import Differential

MOST_KILLS = 8
"""Of one script: each attempt begins from the top."""


def walk(runs: Differential, cases: int, killed: int, size: int = 24, only: Collection[int] | None = None) -> None:
    """Compare all scripts of the run's seed.

    :param killed: drivers to be killed while a case is at work
    :param only: numbers of the scripts to run
    """
    made = [bundle for bundle in bundles(runs.seed, cases, size) if not only or bundle.number in only]
    for place, bundle in enumerate(made):
        runs.compare(bundle, kills(bundle, killed - runs.outcome.struck, len(made) - place))


def kills(bundle: Bundle, left: int, bundles_left: int) -> int:
    """How often a script is killed, so that *left* kills come together in the scripts that are left; a few more than
    needed, because a driver can be through before its moment.
    """
    wanted = -(-left * 5 // (4 * max(1, bundles_left)))
    return max(0, min(wanted, MOST_KILLS, left, len(bundle.cases)))
