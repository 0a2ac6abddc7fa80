"""A reverse proxy in front of a real S3 server that does to chosen requests what networks and servers do."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> str:
        return urlsplit(self.target).query


@dataclass(frozen=True)
class Answer:
    """Answer this in place of the server, in the shape of S3's errors."""

    status: int
    code: str = ""
    message: str = "said by the test"
    headers: dict[str, str] = field(default_factory=dict)
    extra: str = ""
    text: str = ""

    @property
    def body(self) -> bytes:
        if self.text:
            return self.text.encode()
        return f"<Error><Code>{self.code}</Code><Message>{self.message}</Message>{self.extra}</Error>".encode()


class Drop:
    """Close the connection; the server never sees the request."""


class LoseAnswer:
    """The server does what it was asked to; the connection is closed before it can say so."""


@dataclass(frozen=True)
class BreakOff:
    """The connection is closed after so many bytes of the answer's body."""

    after: int


@dataclass(frozen=True)
class Stall:
    """The connection stays open and no answer ever comes.

    :ivar done: the server has done what it was asked to
    """

    done: bool = False


@dataclass(frozen=True)
class Rewrite:
    """The server's answer with another body."""

    change: Callable[[bytes], bytes]


Fault = Answer | Drop | LoseAnswer | BreakOff | Stall | Rewrite | None


class FaultyServer:
    """Passes requests on to *target* and keeps a list of them.

    ``fault`` decides what happens to a request (``None``: nothing) and may change it, for example its headers.
    """

    requests: list[Request]
    fault: Callable[[Request], Fault]

    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        self._over = threading.Event()
        self.reset()
        self._scheme = "https" if tls else "http"
        self._target = urlsplit(target).netloc
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and body are two writes, and the second one would wait for 40 ms

            def handle_any(self) -> None:
                outer._handle(self)

            def __getattr__(self, name: str) -> object:  # do_GET, do_PUT, …
                if name.startswith("do_"):
                    return self.handle_any
                raise AttributeError(name)

            def log_message(self, *args: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                if not isinstance(sys.exception(), ConnectionError):  # a client that was killed
                    super().handle_error(request, client_address)

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def reset(self) -> None:
        """Forget the requests, do no more harm, and let go of connections that were stalled."""
        self._over.set()
        self._over = threading.Event()
        self.requests = []
        self.fault = lambda request: None

    def count(self, method: str, part_of_target: str = "") -> int:
        return sum(r.method == method and part_of_target in r.target for r in self.requests)

    @contextlib.contextmanager
    def running(self) -> Iterator[FaultyServer]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = Request(handler.command, handler.path, dict(handler.headers.items()), body)
        with self._lock:
            self.requests.append(request)
        over, fault = self._over, self.fault(request)
        if isinstance(fault, Answer):
            return self._answer(handler, fault.status, fault.headers, fault.body)
        if not isinstance(fault, Drop) and fault != Stall():
            status, headers, content = self._pass_on(request)
            if fault is None:
                return self._answer(handler, status, headers, content)
            if isinstance(fault, Rewrite):
                return self._answer(handler, status, headers, fault.change(content))
            if isinstance(fault, BreakOff):
                self._answer(handler, status, headers, content, fault.after)
        if isinstance(fault, Stall):
            over.wait()
        handler.close_connection = True
        return None

    def _pass_on(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._target, timeout=30)
        try:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "expect"}
            connection.request(request.method, request.target, request.body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    @staticmethod
    def _answer(
        handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes, cut: int | None = None
    ) -> None:
        handler.send_response(status)
        length = str(len(body))
        for name, value in headers.items():
            if name.lower() == "content-length" and handler.command == "HEAD":
                length = value
            if name.lower() not in _HOP_BY_HOP:
                handler.send_header(name, value)
        handler.send_header("Content-Length", length)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body[:cut])


def times(count: int, fault: Fault, method: str = "", part: str = "") -> Callable[[Request], Fault]:
    """A fault that strikes the first *count* requests that fit."""
    left = [count]

    def decide(request: Request) -> Fault:
        if left[0] > 0 and method in {"", request.method} and part in request.target:
            left[0] -= 1
            return fault
        return None

    return decide
