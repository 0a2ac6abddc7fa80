"""Format an explanation for a terminal: the attempts, and the recovery points as a tree above their inputs."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider.core.explanation import Amount, ExplainedAttempt, ExplainedPoint, Explanation
from airflow_provider.core.graph import JobState
from airflow_provider.core.quantities import aligned, bytes_text, count_text, seconds_text
from airflow_provider.core.report import skipped_texts
from airflow_provider.core.savings import kept_text, noun, other_text, savings_text

WIDTH = 20
"""Characters of the bar that shows a recovery point's partitions."""
EARLIER, COMPUTED, MISSING = "=", "#", "."
_HEADER = ("recovery point", "", "stored", "put back", "rows", "size", "task time")


def format_explanation(told: Explanation) -> str:
    """Return the explanation as lines of text."""
    newest = told.attempts[-1].epoch if told.attempts else 0
    lines = [f"Job {told.job}: {told.state} in attempt {newest}", ""]
    for attempt in told.attempts:
        lines += [*_attempt(attempt), ""]
    if told.points:
        lines += [
            f"Recovery points, each above those that it reads ({EARLIER} stored by earlier attempts, "
            f"{COMPUTED} computed by attempt {newest}, {MISSING} not stored)",
            "",
        ]
        branches = list(_branches(told.points))
        share = told.retry.work is not None
        header = (*_HEADER, "retry keeps" if share else "retry saves")
        rows = aligned([header, *(_row(prefix, point, again, share) for prefix, _, point, again in branches)])
        lines.append(rows[0])
        for row, (_, below, point, again) in zip(rows[1:], branches, strict=True):
            lines.append(row)
            lines += [f"{below}  {note}" for note in ([] if again else point.notes)]
        lines.append("")
    if told.state != JobState.FINISHED and told.retry.others:
        lines += ["For no recovery point:", *(f"  {other_text(other)}" for other in told.retry.others), ""]
    notes = [f"note: {problem}" for problem in told.problems]
    return "\n".join([*lines, *notes, savings_text(told.retry, told.state)])


def _attempt(attempt: ExplainedAttempt) -> list[str]:
    lines = [f"Attempt {attempt.epoch}: {attempt.state}{f' ({attempt.note})' if attempt.note else ''}"]
    if attempt.put_back.partitions:
        lines.append(f"  put back {_amount(attempt.put_back)}, which saved {_time(attempt.put_back)} of task time")
    if attempt.kept.partitions:
        lines.append(f"  kept {_amount(attempt.kept)}, which took {_time(attempt.kept)} of task time")
    if not attempt.put_back.partitions and not attempt.kept.partitions:
        lines.append("  kept nothing that is still stored")
    return [*lines, *(f"  {phrase}" for phrase in skipped_texts(attempt.skipped))]


def _amount(amount: Amount) -> str:
    return f"{amount.partitions:,} {noun(amount.map_outputs, amount.partitions)} ({bytes_text(amount.bytes)})"


def _time(amount: Amount) -> str:
    return seconds_text(amount.task_seconds)


def _row(prefix: str, point: ExplainedPoint, again: bool, share: bool) -> tuple[str, ...]:
    """Return the cells of a row.

    :param share: whether the last cell shows how much of the task time a retry would keep
    """
    if again:
        return (f"{prefix}{point.name} (see above)", *[""] * len(_HEADER))
    return (
        f"{prefix}{point.name}",
        f"[{_bar(point)}]",
        f"{point.stored:,} of {point.partitions:,}",
        f"{point.put_back:,}",
        count_text(point.rows),
        bytes_text(point.bytes),
        seconds_text(point.task_seconds),
        kept_text(point.work) if share else seconds_text(point.would_save) if point.would_reuse else "nothing",
    )


def _bar(point: ExplainedPoint) -> str:
    """Return a bar with the partitions' shares, rounded down, so that only a fully stored vertex fills it."""
    every = max(point.partitions, 1)
    earlier, stored = ((number * WIDTH) // every for number in (point.stored - point.computed, point.stored))
    return (EARLIER * earlier + COMPUTED * (stored - earlier)).ljust(WIDTH, MISSING)


def _branches(points: list[ExplainedPoint]) -> Iterator[tuple[str, str, ExplainedPoint, bool]]:
    """Yield prefix, prefix of further lines, point, and whether it was shown before; unread points come first."""
    known = {point.vertex: point for point in points}
    read = {upstream for point in points for upstream in point.upstream if upstream != point.vertex}
    shown: set[str] = set()
    tops = [point for point in points if point.vertex not in read]
    for top in [*tops, *points]:  # in a cycle, which only a damaged history has, every point is read
        if top.vertex in shown:
            continue
        pending = [(top, "", "")]
        while pending:
            point, prefix, below = pending.pop()
            again = point.vertex in shown
            lower = [] if again else [known[upstream] for upstream in point.upstream if upstream in known]
            yield prefix, below + ("│" if lower else " "), point, again
            shown.add(point.vertex)
            for place, child in reversed(list(enumerate(lower, 1))):
                last = place == len(lower)
                pending.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
