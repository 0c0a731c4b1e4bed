"""Where the head of a Ray cluster is, as people write it."""

from __future__ import annotations

import re

PORT = 6379  # Ray's own
FORM = re.compile(r"(?:\[([^][]+)\]|([^][:]+))(?::(\d+))?|([^][]*:[^][]*:[^][]*)")


def host_port(address: str) -> tuple[str, int]:
    """Host and port (Ray's own where it names none) of HOST, HOST:PORT, [IPv6], [IPv6]:PORT or a bare IPv6 address.

    Raises ValueError for anything else.
    """
    found = FORM.fullmatch(address)
    if found is None:
        raise ValueError(f"{address} is neither HOST, HOST:PORT nor [IPv6]:PORT")
    six, name, port, bare = found.groups()
    return six or name or bare, int(port or PORT)


def one_word(host: str, port: int) -> str:
    """The address of a host and port, for those who take one word."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
