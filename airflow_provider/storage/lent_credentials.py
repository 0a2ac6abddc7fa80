"""Credentials of the event store that a worker lends to a driver on its machine, renewed as long as the job runs.

They go through a file that only this user can read, in a folder that is gone when the driver has ended: an environment
cannot be changed from outside, and everything else of a driver can be seen by others.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.credentials import CredentialProvider, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError

from airflow_provider.storage.private_files import temporary_folder

if TYPE_CHECKING:
    import boto3

LENT_CREDENTIALS = "SPARK_RECOVERY_AWS_CREDENTIALS"
"""Environment variable of the driver: path of the file."""
RENEWED_EVERY = 60.0
"""Seconds. botocore itself renews what has less than 15 minutes left."""
FILE = "credentials"
_READ_AGAIN = timedelta(minutes=12)
"""How long a driver may use what it has read; below botocore's 15 minutes, so that it looks again whenever it asks."""


@contextmanager
def lent(
    session: boto3.Session, renewed: Callable[[str], object], *, every: float = RENEWED_EVERY
) -> Iterator[dict[str, str]]:
    """Yield the environment of a driver that borrows the credentials of *session*, which are renewed meanwhile.

    :param renewed: is given each secret, to mask it
    :param every: seconds between two looks at the session
    """
    ended = threading.Event()
    with temporary_folder() as folder:
        file = folder / FILE

        def renew() -> None:
            while not ended.wait(every):
                try:
                    write_credentials(session, file, renewed)
                except (BotoCoreError, ClientError, OSError):
                    continue  # what is there may last until the next look

        write_credentials(session, file, renewed)
        thread = threading.Thread(target=renew, name="renew-credentials", daemon=True)
        thread.start()
        try:
            yield {LENT_CREDENTIALS: str(file)}
        finally:
            ended.set()
            thread.join()


def write_credentials(session: boto3.Session, file: Path, renewed: Callable[[str], object]) -> None:
    """Write the credentials that *session* has now, if they are not there yet.

    :param renewed: is given each new secret, to mask it
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
    """botocore's way to what a worker lends, if it lends any."""

    METHOD = "spark-recovery"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, Any] = {}

    def load(self) -> RefreshableCredentials | None:
        """Return the credentials, which read the file again from time to time."""
        if not os.environ.get(LENT_CREDENTIALS):
            return None
        return RefreshableCredentials.create_from_metadata(self._read(), refresh_using=self._read, method=self.METHOD)

    def _read(self) -> dict[str, Any]:
        """Return what is lent now; when the worker is gone, what it lent last, as long as AWS takes it."""
        try:
            self._last = json.loads(Path(os.environ[LENT_CREDENTIALS]).read_text())
        except (OSError, ValueError):
            if not self._last:
                raise
        return {**self._last, "expiry_time": (datetime.now(UTC) + _READ_AGAIN).isoformat()}
