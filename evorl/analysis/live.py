"""A server of a report's page while its runs go on: on this machine only (`evorl.util.loopback`).

The page asks for the version of its content every two seconds and takes in what is new (``web/page.js``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import get_args

from evorl.analysis import shown_run, sweeps
from evorl.record import failure, provenance, result
from evorl.record.core import RowFile
from evorl.record.lock import is_locked
from evorl.util.errors import BadRequest
from evorl.util.loopback import LoopbackServer, Reply, running
from evorl.util.text import printable, say

EVERY_S = 2.0
"""Least seconds between two looks at the runs."""
SHARE = 3.0
"""Seconds of rest for each second of composing, so that the runs keep the processor."""
WRITTEN = (
    *(".hydra/config.yaml", provenance.FILE_NAME, "metrics.jsonl", *get_args(RowFile)),
    *(result.FILE_NAME, failure.FILE_NAME, shown_run.FOLDER),
    *(sweeps.INDEX_FILE, sweeps.SEARCH_FILE, sweeps.BEST_FILE),
)
"""What a page is made of, of a run and of a sweep."""


class LiveServer(LoopbackServer):
    """Serves the newest `page`."""

    def __init__(self) -> None:
        super().__init__("evorl.report")
        self.page = b""
        self.version = 0

    def show(self, page: bytes) -> None:
        """Serve this page from now on."""
        self.page, self.version = page, self.version + 1

    def reply(self, name: str, query: Mapping[str, str]) -> Reply | None:
        if name == "version":
            return Reply(str(self.version).encode())
        return None if name else Reply(self.page, "text/html; charset=utf-8")


def waiting(why: str) -> bytes:
    """A page that a browser loads again and again, until there is something to show."""
    why = escape(printable(why))
    refresh = f'<meta http-equiv="refresh" content="{EVERY_S:g}">'
    return f"<!doctype html><html lang=en><title>evorl</title>{refresh}<p>Waiting: {why}.</p></html>".encode()


@contextmanager
def serving(page: bytes) -> Iterator[LiveServer]:
    """Serve a page in a thread until the end of the block."""
    with running(LiveServer()) as server:
        server.show(page)
        yield server


def follow(server: LiveServer, compose: Callable[[], bytes], state: Callable[[], object], seen: object) -> None:
    """Compose the page again whenever the runs have changed since the state ``seen``, until Ctrl-C.

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
