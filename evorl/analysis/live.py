"""A server of a report's page while its runs go on: on this machine only, for those who know its secret address.

The address holds a token, new for each start; a request without it is refused. The page asks for the version of its
content every two seconds and takes in what is new (``web/page.js``).
"""

from __future__ import annotations

import hmac
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR, socket
from threading import Lock, Thread
from typing import Any

from evorl.record.lock import is_locked
from evorl.util.errors import BadRequest
from evorl.util.text import printable, say

HOST = "127.0.0.1"
EVERY_S = 2.0
"""Least seconds between two looks at the runs."""
SHARE = 3.0
"""Seconds of rest for each second of composing, so that the runs keep the processor."""
WRITTEN = (
    *("metrics.jsonl", "population.jsonl", "jobs.jsonl", "result.json", "failure.json"),
    *("sweep.json", "search.json"),
)
IDLE_S = 10.0
"""Seconds without a byte after which a connection is closed."""
MOST = 32
"""Connections at once. One more closes the oldest, so that idle ones keep nobody away."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; media-src data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LiveServer(ThreadingHTTPServer):
    """Serves the newest `page`. ``url`` holds the token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Answer)
        self.token = secrets.token_urlsafe(24)
        self.page = b""
        self.version = 0
        self._open: dict[socket, None] = {}  # connections, the oldest first
        self._lock = Lock()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

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

    def show(self, page: bytes) -> None:
        """Serve this page from now on."""
        self.page, self.version = page, self.version + 1


class _Answer(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "evorl", ""
    default_request_version = "HTTP/1.0"  # an answer in HTTP/0.9 would have no headers
    timeout = IDLE_S

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that `BaseHTTPRequestHandler` itself refuses, with the headers of every other answer."""
        self._answer(HTTPStatus(code), f"{HTTPStatus(code).phrase}.\n".encode())

    def do_GET(self) -> None:
        token, slash, name = self.path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not known or self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
            self._answer(HTTPStatus.FORBIDDEN, b"The address needs the token that evorl.report printed.\n")
        elif not slash:
            self._answer(HTTPStatus.MOVED_PERMANENTLY, b"", {"Location": f"/{token}/"})
        elif name in ("", "version"):
            body = self.server.page if not name else str(self.server.version).encode()
            self._answer(HTTPStatus.OK, body, {"Content-Type": f"text/{'plain' if name else 'html'}; charset=utf-8"})
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is the page, and its version.\n")

    def _answer(self, status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not news."""


def waiting(why: str) -> bytes:
    """A page that a browser loads again and again, until there is something to show."""
    why = escape(printable(why))
    again = f'<meta http-equiv="refresh" content="{EVERY_S:g}">'
    return f"<!doctype html><html lang=en><title>evorl</title>{again}<p>Waiting: {why}.</p></html>".encode()


@contextmanager
def serving(page: bytes) -> Iterator[LiveServer]:
    """Serve a page in a thread until the end of the block."""
    with LiveServer() as server:
        server.show(page)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def follow(server: LiveServer, compose: Callable[[], bytes], state: Callable[[], object], seen: object) -> None:
    """Compose the page anew whenever the state of the runs is no longer the one that was ``seen``, until Ctrl-C.

    Runs that cannot be read for a moment leave the page as it is; the reason is printed, once.
    """
    rest, shown = EVERY_S, ""
    while True:
        time.sleep(rest)
        began = time.perf_counter()
        try:
            newest = state()
            if newest == seen:
                continue
            seen = newest
            server.show(compose())
        except (BadRequest, OSError) as error:
            if str(error) != shown:
                say(f"evorl: {error}", sys.stderr)
            shown = str(error)
        rest = max(EVERY_S, SHARE * (time.perf_counter() - began))


def state_of(directories: Sequence[Path]) -> list[object]:
    """What changes when a run or a sweep in one of these directories goes on, or ends."""
    messages: list[object] = []
    for directory in directories:
        for name in WRITTEN:
            try:
                facts = (directory / name).stat()
            except OSError:
                continue
            messages.append((str(directory), name, facts.st_size, facts.st_mtime_ns))
        messages.append(is_locked(directory))
    return messages
