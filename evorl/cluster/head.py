"""The head of a Ray cluster that is to be joined: whether it listens, and whether it lets us in.

Ray itself would try again and again, and give up without the reason.
"""

from __future__ import annotations

import socket
from typing import Any

import grpc
from ray._private import grpc_utils

REACH_S = 10.0  # seconds in which it must take a connection, and answer
PORT = "6379"  # Ray's own
QUESTION = "/ray.rpc.NodeInfoGcsService/GetClusterId"  # the first that Ray asks who joins; empty


def reached(address: str) -> str:
    """The address with Ray's own port where it names none.

    Raises OSError where nobody listens, PermissionError where a token is asked for and ours is missing or another.
    """
    if address == "auto":
        return address
    host, _, port = address.partition(":")
    found = f"{host}:{port or PORT}"
    socket.create_connection((host, int(port or PORT)), REACH_S).close()
    if _turned_away(found):
        raise PermissionError(
            "it asks for a token, and ours is missing or another: set RAY_AUTH_MODE=token, and have the head's "
            "~/.ray/auth_token here too (or its content in RAY_AUTH_TOKEN)"
        )
    return found


def _turned_away(address: str) -> bool:
    """What else may be wrong Ray will say when it joins."""
    try:
        channel: Any = grpc_utils.init_grpc_channel(address)
        with channel:
            channel.unary_unary(QUESTION)(b"", timeout=REACH_S)
    except grpc.RpcError as error:
        return bool(error.code() == grpc.StatusCode.UNAUTHENTICATED)
    return False
