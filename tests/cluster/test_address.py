"""Where a Ray's head is, as people write it; IPv6 too."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import pytest

from evorl.cluster.local import Local
from evorl.cluster.processes import Processes
from evorl.cluster.ray import Ray, head
from evorl.cluster.ray.address import PORT, host_port, one_word
from evorl.util.errors import BadRequest


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("head", ("head", PORT)), ("head:7", ("head", 7)), ("10.0.0.1:7", ("10.0.0.1", 7)), ("[::1]", ("::1", PORT)),
        ("[fd00::2]:7", ("fd00::2", 7)), ("fd00::2", ("fd00::2", PORT)), ("fe80::1%eth0", ("fe80::1%eth0", PORT)),
    ],
)  # fmt: skip
def test_a_host_and_perhaps_a_port(address: str, meant: tuple[str, int]) -> None:
    assert host_port(address) == meant
    assert host_port(one_word(*meant)) == meant


@pytest.mark.parametrize("address", ["", ":7", "head:", "head:x", "[::1", "[::1]7", "[::1]:", "::1]:7"])
def test_what_is_no_address_is_refused_before_anything_is_tried(address: str) -> None:
    with pytest.raises(BadRequest, match="neither HOST, HOST:PORT nor"):
        Ray(address=address)


def test_a_port_that_none_can_be_is_refused_before_anything_is_tried() -> None:
    assert Ray(address="head:65535")
    with pytest.raises(BadRequest, match="the port 65536; the last one is 65535"):
        Ray(address="head:65536")


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
def test_a_head_is_reached_by_either_protocol(ip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(head, "cluster_at", asked.append)
    with socket.create_server((ip, 0), family=socket.AF_INET6 if ":" in ip else socket.AF_INET) as server:
        word = one_word(ip, server.getsockname()[1])
        assert head.resolved_address(word) == word
        server.accept()[0].close()
    assert asked == [word]
    with pytest.raises(ConnectionRefusedError):
        head.resolved_address(word)


def test_auto_is_the_ray_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(head.services, "find_gcs_addresses", set)
    monkeypatch.setattr(head.services, "find_bootstrap_address", lambda temp_dir: None)
    with pytest.raises(ConnectionError, match="no Ray runs on this machine; null starts one"):
        head.resolved_address("auto")
    monkeypatch.setattr(head.services, "find_bootstrap_address", lambda temp_dir: "127.0.0.1:1")  # of one that is gone
    with pytest.raises(ConnectionError, match=r"that is 127\.0\.0\.1:1: .*refused"):
        head.resolved_address("auto")
    monkeypatch.setattr(head, "cluster_at", lambda address: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        word = one_word("127.0.0.1", server.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", word)
        assert head.resolved_address("auto") == word
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(ConnectionError, match="RAY_ADDRESS is ray://head:10001, which is no HOST:PORT"):
        head.resolved_address("auto")


def test_what_takes_its_time_is_told_before() -> None:
    assert "a Ray on this machine" in Ray().begins
    assert "joins the Ray at head:7" in Ray(address="head:7").begins and "of this machine" in Ray(address="auto").begins
    assert not Processes().begins and not Local().begins


def hang_up(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            server.accept()[0].close()


def answer_otherwise(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            with server.accept()[0] as caller:
                caller.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")


def say_nothing(server: socket.socket) -> None:
    pass


@pytest.mark.parametrize("behave", [hang_up, answer_otherwise, say_nothing])
def test_what_is_no_ray_is_told(behave: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would ask it for ever."""
    monkeypatch.setattr(head, "REACH_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=behave, args=(server,), daemon=True)
        thread.start()
        try:
            with pytest.raises(ConnectionError, match="what listens there does not answer as Ray does"):
                head.resolved_address(one_word(*server.getsockname()))
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_server_of_another_kind_is_no_ray() -> None:
    """As Ray's own for its clients, which listens on another port of a head."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(ConnectionError, match="what listens there does not answer as Ray does"):
            head.resolved_address(f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()
