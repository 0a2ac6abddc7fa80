"""The states of a vertex's partitions, index by index, in as little text as possible.

A run of equal states is its letter and its length: ``r8c3m`` is eight reused, three computed, one missing partition.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from airflow_provider.core.graph import Vertex

REUSED, COMPUTED, MISSING, LOST = "r", "c", "m", "l"
_WORST_FIRST = LOST + MISSING + COMPUTED + REUSED


def partition_states(vertex: Vertex, epoch: int, lost: Collection[int] = ()) -> str:
    """Return one letter for each partition.

    ``r``: kept from an earlier attempt; ``c``: computed by attempt *epoch*; ``l``: was stored once, is not any more and
    has to be computed again; ``m``: not computed yet.

    :param lost: indexes that were given up, stored again since or not
    """
    states = [MISSING] * vertex.initialized.parallelism
    if vertex.has_finished and not vertex.released:
        states = [LOST] * vertex.initialized.parallelism
    for index in lost if not vertex.released else ():
        if index < len(states):
            states[index] = LOST
    for index, partition in vertex.partitions.items():
        states[index] = COMPUTED if partition.attempt >= epoch else REUSED
    return "".join(states)


def encode_runs(states: str) -> str:
    """Return the states as runs; a run of one is its letter alone."""
    runs = ((letter, sum(1 for _ in run)) for letter, run in groupby(states))
    return "".join(letter if length == 1 else f"{letter}{length}" for letter, length in runs)


def merge_cells(states: str, size: int) -> str:
    """Return one letter for each *size* partitions: the one that most wants to be seen."""
    if size <= 1:
        return states
    cells = (states[start : start + size] for start in range(0, len(states), size))
    return "".join(min(cell, key=_WORST_FIRST.index) for cell in cells)
