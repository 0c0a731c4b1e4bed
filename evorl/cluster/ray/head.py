"""The head of a Ray cluster that a run joins: whether it is reachable, accepts the token, and when it is gone.

Ray itself retries for long, reports no reason, and ends the driver a minute after the head is gone.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
import ray._raylet
from ray._private import grpc_utils, services

from evorl.cluster.ray.address import host_port, one_word
from evorl.cluster.ray.own_ray import require_token
from evorl.cluster.ray.private_files import close_token
from evorl.util.poll import readable

REACH_S = 10.0  # seconds for it to accept a connection and to answer
GONE_S = 30.0  # seconds without a connection after which it counts as gone; a restart in time goes unnoticed
AGAIN_S = 1.0  # seconds between two attempts
SILENT_S = 5  # seconds without a packet before a TCP keep-alive probe, and between the probes
NO_RAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED)
QUESTION = "/ray.rpc.NodeInfoGcsService/GetClusterId"  # Ray's own first request when it joins; empty


def resolved_address(address: str) -> str:
    """The address with Ray's default port if it has none; for auto the address of this machine's cluster.

    Raises OSError if no Ray listens there, PermissionError if it requires a token and this run has none or another.
    """
    close_token()
    host, port = host_port(_local_address() if address == "auto" else address)
    resolved = one_word(host, port)
    try:
        socket.create_connection((host, port), REACH_S).close()
    except OSError as error:
        raise error if address != "auto" else ConnectionError(f"that is {resolved}: {error}") from None
    cluster_at(resolved)
    return resolved


def _local_address() -> str:
    """RAY_ADDRESS, a running Ray, or the last one that ``ray start`` noted. Raises ConnectionError without any."""
    untyped: Any = services
    tokens: Any = ray._raylet
    token = tokens.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    if token and not {"RAY_AUTH_MODE", "RAY_ADDRESS"} & os.environ.keys():
        require_token()  # as Ray does for a local cluster, without its long message
    try:
        address = str(untyped.get_ray_address_from_environment("auto", None))
    except ConnectionError:
        raise ConnectionError("no Ray runs on this machine; null starts one, HOST:PORT names another's") from None
    if "://" in address:
        raise ConnectionError(f"RAY_ADDRESS is {address}, which is no HOST:PORT")
    return address


def cluster_at(address: str) -> bytes:
    """Return which cluster's head is at an address HOST:PORT, in Ray's own form; empty if it does not say.

    Raises PermissionError for a wrong token, ConnectionError if it is no Ray (Ray would retry for ever). Ray itself
    reports all other errors when it joins.
    """
    try:
        channel: Any = grpc_utils.init_grpc_channel(address)
        with channel:
            return bytes(channel.unary_unary(QUESTION)(b"", timeout=REACH_S))
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            raise PermissionError(
                "it asks for a token, and ours is missing or another: set RAY_AUTH_MODE=token, and have the head's "
                "~/.ray/auth_token here too (or its content in RAY_AUTH_TOKEN)"
            ) from None
        if error.code() in NO_RAY:
            raise ConnectionError("what listens there does not answer as Ray does") from None
        return b""


class HeadLost(RuntimeError):
    """The head of the cluster is gone, so no worker can be started, stopped or replaced."""


class HeadMonitor:
    """Keeps a connection to the head; calls ``gone`` from its own thread after `GONE_S` without one."""

    def __init__(self, address: str, gone: Callable[[], None]) -> None:
        self._address, self._gone = host_port(address), gone
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._watch, name="evorl head", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        seen = time.monotonic()
        while not readable([self._end], AGAIN_S):
            try:
                with socket.create_connection(self._address, AGAIN_S) as head:
                    self._listen(head)
                seen = time.monotonic()
            except OSError:
                if time.monotonic() - seen > GONE_S:
                    return self._gone()

    def _listen(self, head: socket.socket) -> None:
        """Wait until the head closes the connection, which it also does to an idle client now and then."""
        head.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            head.setsockopt(socket.IPPROTO_TCP, option, SILENT_S)
        head.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
        with suppress(OSError):
            while self._end not in readable([head, self._end]) and head.recv(4096):
                pass

    def close(self) -> None:
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._end)
