"""An S3 look-alike in this process (moto) on a free port: fast to start, lenient where S3 is strict."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from moto.server import ThreadedMotoServer

from tests.support.s3_gateway import S3Server


@contextlib.contextmanager
def moto_server() -> Iterator[S3Server]:
    """Run a server; it takes any credentials."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}", "testaccess", "testsecret")
    finally:
        server.stop()
