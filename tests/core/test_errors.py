"""Errors carry what a caller needs, so that nobody parses a message."""

from __future__ import annotations

import inspect

from airflow_provider.core import errors
from airflow_provider.core.errors import (
    AccessDenied,
    ClaimsLost,
    JvmLost,
    OwnershipUnconfirmed,
    RecoveryError,
    ResetFailed,
    StoreUnavailable,
)


def test_an_error_names_the_thing_the_remedy_and_the_ids() -> None:
    """The text is both sentences; ids that are not known are left out."""
    error = AccessDenied("Access denied.", remedy="Allow it.", bucket="b", key="k", region=None)
    assert str(error) == "Access denied. Allow it."
    assert (error.message, error.remedy, error.ids) == ("Access denied.", "Allow it.", {"bucket": "b", "key": "k"})
    assert str(RecoveryError("Alone.")) == "Alone."


def test_there_is_one_hierarchy_and_it_says_what_is_worth_another_try() -> None:
    """Every error of the project is a RecoveryError; a store may answer again, the next epoch may be a
    free one, and the next JVM may live.
    """
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert len(kinds) > 5
    errors_of_ours = [kind for kind in kinds if issubclass(kind, RecoveryError)]
    assert errors_of_ours == kinds
    assert [kind for kind in errors_of_ours if kind.retryable] == [
        ClaimsLost,
        JvmLost,
        OwnershipUnconfirmed,
        ResetFailed,
        StoreUnavailable,
    ]
