"""The project's one exception hierarchy.

Every error carries the ids of what it is about, a remedy (``remedy``), and whether trying again can help
(``retryable``). Callers never need to parse a message.
"""

from __future__ import annotations

REPORT_IT = "This is a defect of airflow-provider-spark-recovery; please report it with the driver's log."


class RecoveryError(Exception):
    """Base of all errors that this package raises deliberately.

    :param message: one sentence that names what is wrong
    :param remedy: what the user can do about it
    :param ids: the objects involved (``bucket=…, key=…, job=…``), kept as :attr:`ids`
    """

    retryable = False

    def __init__(self, message: str, *, remedy: str = "", **ids: object) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.ids = {name: value for name, value in ids.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class ConfigurationError(RecoveryError):
    """An option, URI, connection or argument is wrong; nothing was started."""


class EventFormatError(RecoveryError):
    """A stored record is damaged, of an unknown type, or of a newer version."""


class StoreError(RecoveryError):
    """The object store refused or failed an operation."""


class StoreUnavailable(StoreError):
    """The store did not answer properly, even after several requests."""

    retryable = True


class AccessDenied(StoreError):
    """The credentials do not allow the operation."""


class StoreNotFound(StoreError):
    """The event store's bucket or directory does not exist."""


class ObjectNotFound(StoreError):
    """There is no object under this key."""


class ObjectExists(StoreError):
    """A create-only write found that the key exists."""


class ClaimsLost(StoreError):
    """Claims of a job are gone although their attempts have written, so an epoch was taken twice."""

    retryable = True


class CorruptObject(StoreError):
    """An object's content does not match its recorded size or checksum."""


class Fenced(RecoveryError):
    """A newer attempt owns the job; this one must stop and commit nothing."""


class OwnershipUnconfirmed(RecoveryError):
    """An attempt cannot confirm that it still owns its job, so it must not write anything."""

    retryable = True


class JvmLost(RecoveryError):
    """The driver's JVM has ended or stopped answering."""

    retryable = True


class ResetFailed(RecoveryError):
    """A source was pinned again during an attempt, and the script's ``on_reset`` failed."""

    retryable = True


class JobAlreadyRunning(RecoveryError):
    """An earlier attempt's driver is still running although it is fenced."""


class JobOfAnotherDeployment(RecoveryError):
    """The job belongs to another Airflow deployment that shares the event store."""


class IllegalMove(RecoveryError):
    """A call that the current state does not allow: a bug, not a condition to handle."""
