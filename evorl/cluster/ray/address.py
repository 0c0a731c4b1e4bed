"""Addresses of the head of a Ray cluster, as users write them."""

from __future__ import annotations

import re

PORT = 6379  # Ray's own
MOST_PORT = 65535
FORM = re.compile(r"(?:\[([^][]+)\]|([^][:]+))(?::(\d+))?|([^][]*:[^][]*:[^][]*)")


def host_port(address: str) -> tuple[str, int]:
    """Host and port (Ray's own where it names none) of HOST, HOST:PORT, [IPv6], [IPv6]:PORT or a bare IPv6 address.

    Raises ValueError for anything else.
    """
    match = FORM.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is neither HOST, HOST:PORT nor [IPv6]:PORT")
    six, name, port, bare = match.groups()
    if int(port or PORT) > MOST_PORT:
        raise ValueError(f"{address} names the port {port}; the last one is {MOST_PORT}")
    return six or name or bare, int(port or PORT)


def one_word(host: str, port: int) -> str:
    """An address HOST:PORT from a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
