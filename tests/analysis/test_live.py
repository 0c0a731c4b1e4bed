"""The server of the page: who may read it, what it sends, when it composes anew."""

from __future__ import annotations

import errno
import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import pytest

from evorl.analysis import live
from evorl.record.core import RowFile
from evorl.util import loopback
from evorl.util.errors import BadRequest


def get(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of a request that goes straight to the server."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


def test_the_page_is_for_those_who_know_the_token() -> None:
    with live.serving("<p>é".encode()) as server:
        root = f"http://127.0.0.1:{server.server_port}"
        assert server.url.startswith(f"{root}/") and len(server.token) >= 32
        for path in ("/", "/version", f"/{server.token[:-1]}/", f"/{server.token}x/", "/%c3%a9/", "//"):
            status, body, _ = get(root + path)
            assert status == 403 and "<p>" not in body
        assert get(server.url, Host="evil.example")[0] == 403
        status, body, headers = get(server.url)
        assert (status, body) == (200, "<p>é") and headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
        assert get(server.url.rstrip("/"))[1] == "<p>é"  # by a redirect
        assert get(server.url + "secret")[0] == 404
        assert server.server_address[0] == "127.0.0.1"


def raw(server: live.LiveServer, request: bytes) -> str:
    """The whole answer to bytes that may be no request."""
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as made:
        made.sendall(request)
        made.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: made.recv(1 << 16), b"")).decode()


def test_answers_to_what_is_no_request_have_the_headers_too() -> None:
    with live.serving(b"<p>") as server:
        for request, status in (
            (b"POST / HTTP/1.0\r\n\r\n", 501), (b"nonsense\r\n\r\n", 400), (b"GET / HTTP/9.9\r\n\r\n", 505),
            (b"GET /" + b"x" * 70_000 + b" HTTP/1.0\r\n\r\n", 414), (b"GET /\r\n\r\n", 403),
            (f"GET /{server.token}/\r\n\r\n".encode(), 403),
        ):  # fmt: skip
            answer = raw(server, request)
            assert answer.startswith(f"HTTP/1.0 {status} ") and "<p>" not in answer
            for name, value in loopback.HEADERS.items():
                assert f"{name}: {value}\r\n" in answer


def test_idle_connections_keep_nobody_away() -> None:
    with live.serving(b"<p>") as server, ExitStack() as held:
        for _ in range(loopback.MOST + 20):
            held.enter_context(socket.create_connection(("127.0.0.1", server.server_port), 10))
        assert get(server.url)[0] == 200
        assert len(server._open) <= loopback.MOST


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback.Answer, "timeout", 0.01)
    with live.serving(b"") as server, socket.create_connection(("127.0.0.1", server.server_port), 10) as idle:
        assert idle.recv(1) == b""


def test_a_server_without_a_file_left_rests_before_it_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It spun, since the selector says all the time that a connection waits."""
    accept, full = socket.socket.accept, [True]
    tries = list[float]()

    def accepted(listens: socket.socket) -> Any:
        if not full[0]:
            return accept(listens)
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", accepted)
    with live.serving(b"<p>") as server, socket.create_connection(("127.0.0.1", server.server_port)):
        while len(tries) < 3:
            time.sleep(0.01)
        full[0] = False
        assert tries[2] - tries[0] >= 2 * loopback.REST_S
        assert get(server.url)[1] == "<p>"


def test_two_servers_have_ports_and_tokens_of_their_own() -> None:
    with live.serving(b"") as one, live.serving(b"") as other:
        assert one.url != other.url and one.token != other.token
        assert get(f"http://127.0.0.1:{one.server_port}/{other.token}/")[0] == 403


def test_a_page_is_composed_when_the_runs_have_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.0)
    states = iter(["a", "b", "b", "c", "d", BadRequest("gone"), BadRequest("gone"), "d"])
    pages = iter([b"two", None, b"three"])
    seen = []

    def state() -> str:
        seen.append(get(server.url + "version")[1] + get(server.url)[1])
        found = next(states, KeyboardInterrupt())
        if isinstance(found, BaseException):
            raise found
        return found

    def compose() -> bytes:
        page = next(pages)
        if page is None:
            raise BadRequest("half written")
        return page

    with pytest.raises(KeyboardInterrupt), live.serving(b"one") as server:
        live.follow(server, compose, state, "a")
    assert seen == ["1one", "1one", *["2two"] * 3, *["3three"] * 4]
    assert capsys.readouterr().err == "evorl: half written\nevorl: gone\n"
    with pytest.raises(urllib.error.URLError):
        get(server.url)


def test_the_state_changes_with_every_written_file(tmp_path: Path) -> None:
    known = [live.state_of([tmp_path])]
    several = ("metrics.jsonl", *get_args(RowFile), "result.json", "failure.json", "provenance.json")
    for name in (*several, ".hydra/config.yaml", "sweep.json", "search.json", "best.json", "videos/64-best.mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n")
        known.append(live.state_of([tmp_path]))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("{}\n")
    known.append(live.state_of([tmp_path]))
    assert all(known.count(one) == 1 for one in known) and live.state_of([tmp_path]) == known[-1]
