"""An explanation as text. Each node has one line, results above what they are made of; only what has several inputs
moves to the right.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from airflow_provider.recovery.quantities import bytes_text
from airflow_provider.spark.explain.explanation import ExplainedAction, ExplainedNode, ExplainedPoint, Explanation

WIDTH = 120
"""Columns, at least for what is not indented far."""
_LEAST = 60
_REASONS = {
    "aggregate": "it reads much and returns little",
    "window": "it has shuffled and sorted its input",
    "grouped function": "a shuffle and Python in one",
    "shuffle": "shuffle files die with the application",
    "join input": "the join may fail, and what feeds it is dear",
    "aggregate input": "if its rows are too many to be stored, what they become in the next shuffle is kept",
    "function before a shuffle": "shuffle files die with the application, and Python takes time",
    "function before the sink": "the sink keeps nothing of a job that is killed",
    "before the sink": "the sink keeps nothing of a job that is killed",
    "result": "small, and the script goes on from it",
    "persisted": "the script keeps it itself",
}
"""Of the rules, in a few words."""


def format_explanation(explanation: Explanation) -> str:
    """Return all actions with their plans, and a summary."""
    lines: list[str] = []
    for action in explanation.actions:
        lines += [*_action(action), ""]
    return "\n".join([*lines, *_summary(explanation)])


def _action(action: ExplainedAction) -> Iterator[str]:
    place = f"  {action.place}" if action.place else ""
    yield f"{action.number}. {action.action}{place}"
    if action.note:
        yield f"   {action.note}"
    if action.plan is not None:
        yield from _tree(action.plan, "   ", "   ")


def _tree(node: ExplainedNode, first: str, rest: str) -> Iterator[str]:
    """Yield the lines of *node* and all below.

    :param first: what stands before its own line
    :param rest: what stands before all that follow
    """
    yield first + _node(node, WIDTH - len(first))
    for told in (node.note, _point(node.point) if node.point is not None else ""):
        for line in textwrap.wrap(told, max(_LEAST, WIDTH - len(rest)), initial_indent="  ", subsequent_indent="    "):
            yield rest + line
    if len(node.children) == 1:
        yield from _tree(node.children[0], rest, rest)
        return
    for child in node.children[:-1]:
        yield from _tree(child, f"{rest}├─ ", f"{rest}│  ")
    for child in node.children[-1:]:
        yield from _tree(child, f"{rest}└─ ", f"{rest}   ")


def _node(node: ExplainedNode, width: int) -> str:
    size = f"  {bytes_text(node.size)}" if node.size else ""
    text = f"{node.name} {node.label}".rstrip()
    room = max(_LEAST, width) - len(size)
    return (text if len(text) <= room else f"{text[: room - 1]}…") + size


def _point(point: ExplainedPoint) -> str:
    if point.refused:
        return f"- no recovery point {point.name!r}: {point.refused}"
    if point.kept_by:
        return f"= recovery point {point.name!r}: stored by action {point.kept_by}, read from there"
    why = _REASONS.get(point.rule, point.rule)
    later = "; looked at again when its shuffles have run" if point.measured else ""
    shuffles = f"; until then the files of {', '.join(point.shuffles)} are kept, task by task" if point.shuffles else ""
    return f"+ recovery point {point.name!r}: {why}; computing takes about {_seconds(point.seconds)}{later}{shuffles}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{seconds:.1g} s"


def _summary(explanation: Explanation) -> Iterator[str]:
    points = [point for action in explanation.actions for point in action.points]
    placed = sum(not point.refused and not point.kept_by for point in points)
    refused = sum(bool(point.refused) for point in points)
    yield (
        f"{explanation.application}: {_count(len(explanation.actions), 'action')}, "
        f"{_count(placed, 'recovery point')}, {_count(refused, 'place')} not taken"
    )
    if explanation.jobs:
        told = ", ".join(f"{name} {number}" for name, number in sorted(explanation.jobs.items()))
        yield f"No job of the script ran; to make its plans, Spark itself ran: {told}"
    else:
        yield "No Spark job ran"
    if explanation.error:
        yield "The script went no further, which may be because its actions returned nothing here:"
        yield f"  {explanation.error}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
