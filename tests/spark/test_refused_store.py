"""``spark-recovery run`` with an S3 that refuses: one line says what is wrong and what to do, before Spark starts."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider.core.run_request import EXIT_CONFIGURATION, EXIT_FAILED
from tests.support.driver import DriverHarness
from tests.support.http_faults import Answer, Fault, FaultyServer, Request
from tests.support.s3_gateway import S3Server

pytestmark = [pytest.mark.process, pytest.mark.integration]

RETRIED = 6
"""Requests that the retry policy sends in all."""


def without_condition(request: Request) -> Fault:
    """A store that does not know ``If-None-Match`` and replaces what is there."""
    for name in [name for name in request.headers if name.lower() == "if-none-match"]:
        del request.headers[name]
    return None


@pytest.mark.parametrize(
    ("fault", "bucket", "thing", "remedy", "code", "requests"),
    [
        (Answer(400, "ExpiredToken"), "", "credentials", "Renew them", EXIT_CONFIGURATION, 1),
        (Answer(403, "AccessDenied"), "", "Access denied", "Allow s3:ListBucket", EXIT_CONFIGURATION, 1),
        (None, "nobody-has-made-this", "'nobody-has-made-this' does not exist", "Create it", EXIT_CONFIGURATION, 1),
        (without_condition, "", "replaced an object although", "use AWS S3", EXIT_CONFIGURATION, 4),
        (Answer(503, "SlowDown"), "", "kept failing", "Look at its health", EXIT_FAILED, RETRIED),
    ],
    ids=["expired credentials", "access denied", "missing bucket", "no create-only", "503 for ever"],
)
def test_one_line_on_standard_error(
    driver: DriverHarness,
    moto: S3Server,
    tmp_path: Path,
    fault: Answer | Callable[[Request], Fault] | None,
    bucket: str,
    thing: str,
    remedy: str,
    code: int,
    requests: int,
) -> None:
    """It names the thing and the remedy; no traceback, no script, no JVM, no secret, and nothing is asked for ever."""
    script = tmp_path / "script.py"
    script.write_text("print('the script has run')")
    with FaultyServer(moto.endpoint).running() as server:
        server.fault = fault if callable(fault) else lambda request: fault
        driver.event_store = f"s3://{bucket or moto.create_bucket('refused-store')}/{uuid.uuid4().hex}"
        driver.storage = {"endpoint-url": server.endpoint, "region": "us-east-1"}
        driver.environment = moto.environment
        began = time.monotonic()
        done = subprocess.run(
            driver.command(script),
            env=driver.env(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert time.monotonic() - began < 40
        assert len(server.requests) == requests
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert "ERROR spark-recovery: " in line
    assert thing in line
    assert driver.event_store.removeprefix("s3://").partition("/")[0] in line
    assert remedy in line
    assert "testsecret" not in done.stdout + done.stderr
    assert "the script has run" not in done.stdout
    assert not any((tmp_path / "eventlog-0").iterdir()), "Spark has started"
