"""Airflow's own simple auth manager, and one rule more: who is named after a DAG may not come near any other one."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

PASSWORD = "for-tests-only"
USERS = {"ann": "user", "vic": "viewer", "other_dag": "user", "nobody": ""}


class PerDagAuthManager(SimpleAuthManager):
    """``other_dag`` has the role of a user for the DAG of that name alone."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, **rest: Any) -> bool:
        foreign = user.get_name() == "other_dag" and getattr(details, "id", None) != "other_dag"
        return not foreign and super().is_authorized_dag(user=user, details=details, **rest)
