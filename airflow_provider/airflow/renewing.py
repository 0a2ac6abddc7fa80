"""Renew the temporary credentials of a driver, which may outlive its task, in a process beside the driver.

The process runs on the driver's machine and belongs to no task. It receives the connection's session through a pipe,
rewrites the file that the driver reads, and ends with the driver.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.storage import lent_credentials
from airflow_provider.storage.lent_credentials import FILE, LENT_CREDENTIALS, write_credentials
from airflow_provider.storage.private_files import hold, new_temporary_folder, remove_held
from airflow_provider.storage.processes import Process, start_of

if TYPE_CHECKING:
    import boto3
    from airflow.sdk import Connection

_PARTS = ("conn_id", "conn_type", "host", "login", "password", "schema", "port", "extra")
_POLL = 1.0


class Loan:
    """Credentials lent to a driver on this machine.

    :param session: the connection's session
    :param renewed: called with each new secret, to mask it
    """

    def __init__(
        self, session: boto3.Session, connection: Connection, region: str, renewed: Callable[[str], object]
    ) -> None:
        self._order = {"connection": {name: getattr(connection, name) for name in _PARTS}, "region": region}
        self._folder = new_temporary_folder()
        self.process: subprocess.Popen[bytes] | None = None
        try:
            write_credentials(session, self._folder / FILE, renewed)
        except BaseException:
            self.take_back()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell a driver where the credentials are."""
        return {LENT_CREDENTIALS: str(self._folder / FILE)}

    def take_back(self) -> None:
        """Remove the credentials, because no driver was started."""
        remove_held(self._folder)

    def renew_during(self, driver: int, output: Path | None) -> int:
        """Start the process that renews the credentials while process *driver* runs; return its id.

        :param output: file for its messages; they are dropped if ``None``: the task's own log would not end before it
        :raises OSError: it cannot be started
        """
        order = {
            **self._order,
            "folder": str(self._folder),
            "every": lent_credentials.RENEWED_EVERY,
            "driver": driver,
            "started": start_of(driver) or 0,
        }
        with open(output or os.devnull, "ab") as file:
            self.process = subprocess.Popen(  # noqa: S603 - a module of our own
                [sys.executable, "-P", "-W", "ignore", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )
        pipe = self.process.stdin
        assert pipe is not None  # noqa: S101 - it was asked for
        with pipe:
            pipe.write(json.dumps(order).encode())
        return self.process.pid


def renew(order: Mapping[str, Any]) -> None:
    """Renew lent credentials until their driver has ended, and remove them."""
    folder = hold(Path(order["folder"]))
    try:
        driver, session, said = Process(order["driver"], order["started"]), None, ""
        while not driver.wait(order["every"], min(order["every"], _POLL)):
            try:
                session = session or _session(order["connection"], order["region"])
                write_credentials(session, folder / FILE, lambda _: None)
                said = ""
            except Exception as error:  # noqa: BLE001 - Airflow's code raises all kinds; the loop tries again
                problem = f"The driver's credentials for the event store are not renewed: {error}"
                if problem != said:
                    sys.stderr.write(f"{problem}\n")
                    sys.stderr.flush()
                said = problem
    finally:
        remove_held(folder)


def _session(parts: Mapping[str, Any], region: str) -> boto3.Session:
    """Return a session from the connection's own parts: no task runs here that could ask Airflow for it."""
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
    from airflow.sdk import Connection

    connection = Connection(**parts)

    class Hook(AwsBaseHook):
        @classmethod
        def get_connection(cls, conn_id: str) -> Connection:
            del conn_id
            return connection

    return Hook(aws_conn_id=connection.conn_id, client_type="s3", region_name=region or None).get_session(
        region_name=region or None
    )


def _end(*_: object) -> None:
    sys.exit(1)


if __name__ == "__main__":
    logging.disable()  # Airflow's and botocore's logs would mix with the driver's lines; `renew` prints what matters
    signal.signal(signal.SIGTERM, _end)
    renew(json.load(sys.stdin))
