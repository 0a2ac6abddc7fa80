"""Quantities as people read them."""

from __future__ import annotations


def bytes_text(size: float) -> str:
    """Return a number of bytes in the unit that suits it, with its unit: ``512 B``, ``1.5 KiB``, ``43.3 PiB``."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024:
            return f"{size:,.1f} {unit}"
    return f"{size / 1024:,.1f} PiB"
