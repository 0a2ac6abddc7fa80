"""How ``spark-recovery run`` is asked to place recovery points in scripts that name none."""

from __future__ import annotations

from collections.abc import Mapping

RECOVERY_POINTS: Mapping[str, str] = {}
"""Options of each run of an unmodified script; to become ``{"recovery-points": "auto"}``, with whatever else small data
needs for recovery points to be placed at all.

While it is empty nothing is stored, kills at fault points inside recovery points are left out, and the results are
compared all the same.
"""
