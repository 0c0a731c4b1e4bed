"""A web server on this machine only, for those who know its secret address.

The address holds a token, new for each start; a request without it is refused.
"""

from __future__ import annotations

import hmac
import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from threading import Lock, Thread
from time import sleep
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

HOST = "127.0.0.1"
IDLE_S = 10.0
"""Seconds without a byte after which a connection is closed."""
MOST = 32
"""Connections at once. A further connection closes the oldest, so idle connections keep no client away."""
REST_S = 0.1
"""Seconds before a connection for which no file is left is tried again."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; media-src data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Reply(NamedTuple):
    """The answer to a request."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


class LoopbackServer(ThreadingHTTPServer):
    """``url`` holds the token; ``command``: who prints it."""

    daemon_threads = True
    request_queue_size = MOST  # with Python's 5, the system lets those that come at once try again seconds later

    def __init__(self, command: str) -> None:
        super().__init__((HOST, 0), Answer)
        self.command = command
        self.token = secrets.token_urlsafe(24)
        self._open: dict[socket, None] = {}  # connections, the oldest first
        self._lock = Lock()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    @abstractmethod
    def reply(self, name: str, query: Mapping[str, str]) -> Reply | None:
        """The answer to a request for this name that has the token; None if there is no such name."""

    def get_request(self) -> tuple[socket, Any]:
        try:
            return super().get_request()
        except OSError:  # the connection stays in the queue, and the selector would say so all the time
            sleep(REST_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            for oldest in [*self._open][:-MOST]:
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(SHUT_RDWR)  # its thread then closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is not news."""


class Answer(BaseHTTPRequestHandler):
    server: LoopbackServer
    server_version, sys_version = "evorl", ""
    default_request_version = "HTTP/1.0"  # an answer in HTTP/0.9 would have no headers
    timeout = IDLE_S

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that `BaseHTTPRequestHandler` itself refuses, with the headers of every other answer."""
        self._answer(HTTPStatus(code), f"{HTTPStatus(code).phrase}.\n".encode())

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        token, slash, name = path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not known or self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
            refusal = f"The address needs the token that {self.server.command} printed.\n"
            self._answer(HTTPStatus.FORBIDDEN, refusal.encode())
        elif not slash:
            self._answer(HTTPStatus.MOVED_PERMANENTLY, b"", {"Location": f"/{token}/"})
        elif (reply := self.server.reply(name, dict(parse_qsl(query)))) is not None:
            self._answer(HTTPStatus.OK, reply.body, {"Content-Type": reply.kind, **reply.headers})
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is no such page.\n")

    def _answer(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not news."""


S = TypeVar("S", bound=LoopbackServer)


@contextmanager
def running(server: S) -> Iterator[S]:
    """Serve in a thread until the end of the block."""
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
