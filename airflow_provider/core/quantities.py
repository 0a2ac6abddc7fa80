"""Format quantities and tables for people, in plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def bytes_text(size: float) -> str:
    """Return a number of bytes with a suitable unit: ``512 B``, ``1.5 KiB``, ``43.3 PiB``."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024:
            return f"{size:,.1f} {unit}"
    return f"{size / 1024:,.1f} PiB"


def count_text(count: int | None) -> str:
    """Return a number of things with separators; empty if it is unknown."""
    return "" if count is None else f"{count:,}"


def seconds_text(seconds: float) -> str:
    """Return a duration with suitable units: ``0.4 s``, ``12 s``, ``5 min 10 s``, ``2 h 03 min``."""
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


def aligned(lines: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return one line of text for each line of cells, columns two spaces apart.

    :param lines: the header and the rows, all of the same length
    :param left: numbers of the left-aligned columns; all others are right-aligned
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
