"""The one exception hierarchy of the project.

Every error names the thing it is about as attributes, says what to do (``remedy``), and knows whether trying
again can help (``retryable``). Callers never need to parse a message.
"""

from __future__ import annotations

REPORT_IT = "This is a defect of airflow-provider-spark-recovery; please report it with the driver's log."


class RecoveryError(Exception):
    """Base of all errors that this package raises on purpose.

    :param message: one sentence that names the thing that is wrong
    :param remedy: what the user can do about it
    :param ids: the identities involved (``bucket=…, key=…, job=…``), kept as :attr:`ids`
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
    """A stored record cannot be understood: damaged, of an unknown type, or of a newer version."""


class StoreError(RecoveryError):
    """The object store refused or failed an operation."""


class StoreUnavailable(StoreError):
    """The store did not answer properly although it was asked several times."""

    retryable = True


class AccessDenied(StoreError):
    """The credentials may not do this."""


class StoreNotFound(StoreError):
    """The bucket or directory that should hold the event store does not exist."""


class ObjectNotFound(StoreError):
    """No object under this key."""


class ObjectExists(StoreError):
    """A create-only write found the key taken: somebody was first."""


class ClaimsLost(StoreError):
    """Claims of a job are gone although their attempts have written, so that an epoch was taken again."""

    retryable = True


class CorruptObject(StoreError):
    """An object's content does not match its recorded size or checksum."""


class Fenced(RecoveryError):
    """A newer attempt owns the job; this one must stop and commit nothing."""


class OwnershipUnconfirmed(RecoveryError):
    """An attempt cannot find out whether it still owns its job, so it must not write anything."""

    retryable = True


class JvmLost(RecoveryError):
    """The driver's JVM has ended, or does not answer any more."""

    retryable = True


class ResetFailed(RecoveryError):
    """A source was pinned anew in the middle of an attempt, and the script's own ``on_reset`` failed."""

    retryable = True


class JobAlreadyRunning(RecoveryError):
    """An earlier attempt's driver still lives although it has been fenced."""


class JobOfAnotherDeployment(RecoveryError):
    """A job of these ids is another Airflow deployment's, which shares the event store."""


class IllegalMove(RecoveryError):
    """Something was asked for that the state it is in does not allow: a defect, not a condition to handle."""
