"""Lend a worker's credentials for the event store to a driver on its machine, renewed while the job runs.

They are passed in a file that only this user can read, in a folder that is removed when the driver has ended: an
environment cannot be changed from outside, and others can see everything else of a driver.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.credentials import CredentialProvider, RefreshableCredentials

if TYPE_CHECKING:
    import boto3

LENT_CREDENTIALS = "SPARK_RECOVERY_AWS_CREDENTIALS"
"""Environment variable of the driver: path of the file."""
RENEWED_EVERY = 60.0
"""Seconds. botocore itself renews what has less than 15 minutes left."""
FILE = "credentials"
_READ_AGAIN = timedelta(minutes=12)
"""How long a driver may use what it has read; below botocore's 15 minutes, so that it looks again whenever it asks."""


def write_credentials(session: boto3.Session, file: Path, renewed: Callable[[str], object]) -> None:
    """Write the current credentials of *session*, if they are new.

    :param renewed: called with each new secret, to mask it
    """
    found = session.get_credentials()
    if found is None:
        return
    keys = found.get_frozen_credentials()
    content = json.dumps({"access_key": keys.access_key, "secret_key": keys.secret_key, "token": keys.token})
    if file.exists() and file.read_text() == content:
        return
    for secret in (keys.secret_key, keys.token):
        if secret:
            renewed(secret)
    unfinished = file.with_suffix(".new")
    unfinished.touch(mode=0o600)
    unfinished.write_text(content)
    unfinished.replace(file)


class LentCredentials(CredentialProvider):
    """botocore's provider for credentials that a worker lends, if any."""

    METHOD = "spark-recovery"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, Any] = {}

    def load(self) -> RefreshableCredentials | None:
        """Return the credentials, which refresh themselves from the file."""
        if not os.environ.get(LENT_CREDENTIALS):
            return None
        return RefreshableCredentials.create_from_metadata(self._read(), refresh_using=self._read, method=self.METHOD)

    def _read(self) -> dict[str, Any]:
        """Return the lent credentials; if the worker is gone, the last ones, for as long as AWS accepts them."""
        try:
            self._last = json.loads(Path(os.environ[LENT_CREDENTIALS]).read_text())
        except (OSError, ValueError):
            if not self._last:
                raise
        return {**self._last, "expiry_time": (datetime.now(UTC) + _READ_AGAIN).isoformat()}
