"""How ``spark-recovery run`` is asked to place recovery points in scripts that name none."""

from __future__ import annotations

from collections.abc import Mapping

RECOVERY_POINTS: Mapping[str, str] = {"recovery-points": "auto", "overhead-budget": "1e6"}
"""Options of each run of an unmodified script; to become ``{"recovery-points": "auto"}``. While it is empty nothing is
stored, kills at fault points inside recovery points are left out, and the results are compared all the same.
"""
