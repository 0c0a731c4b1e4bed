"""The server's side of WebSocket (RFC 6455), for browsers: one binary message is one message of the protocol.

Extensions, subprotocols and text messages are refused.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct

import numpy as np

from evorl.mdp.remote.messages import Nonsense

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX_REQUEST = 8192
"""Bytes of the request that opens it."""
CONTINUED, BINARY, CLOSE, PING, PONG = 0, 2, 8, 9, 10
_KEY = re.compile(rb"^sec-websocket-key:[ \t]*([A-Za-z0-9+/]{22}==)[ \t]*$", re.IGNORECASE | re.MULTILINE)


class WebSocket:
    """Frames of one peer."""

    def __init__(self) -> None:
        self._open = False
        self.closed = False
        """Whether the peer has said that it closes the connection."""
        self._parts = bytearray()  # of a message in several frames
        self._continues = False
        self._replies = bytearray()

    def replies(self) -> bytes:
        data = bytes(self._replies)
        self._replies.clear()
        return data

    def frames(self, buffer: bytearray, limit: int) -> list[bytes]:
        if not self._open and not self._upgrade(buffer):
            return []
        frames = list[bytes]()
        while not self.closed and (frame := _frame(buffer, limit - len(self._parts))) is not None:
            last, kind, data = frame
            if kind in (CLOSE, PING, PONG):
                self._control(kind, data)
                self.closed = kind == CLOSE
                continue
            if kind not in (CONTINUED, BINARY) or (kind == CONTINUED) != self._continues:
                raise Nonsense("sent a WebSocket message that is not binary, or a piece of none")
            self._parts += data
            self._continues = not last
            if last:
                frames.append(bytes(self._parts))
                self._parts.clear()
        return frames

    def framed(self, message: bytes) -> bytes:
        return _header(BINARY, len(message)) + message

    def _upgrade(self, buffer: bytearray) -> bool:
        """Answer the request that opens the connection; return False while it has not arrived as a whole."""
        end = buffer.find(b"\r\n\r\n", 0, MAX_REQUEST + 4)
        if end < 0:
            if len(buffer) > MAX_REQUEST:
                raise Nonsense(f"sent a request of more than {MAX_REQUEST} bytes")
            return False
        key = _KEY.search(bytes(buffer[:end]).replace(b"\r\n", b"\n"))
        if key is None:
            raise Nonsense("sent a request that opens no WebSocket")
        accept = base64.b64encode(hashlib.sha1(key[1] + GUID, usedforsecurity=False).digest())
        self._replies += (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        del buffer[: end + 4]
        self._open = True
        return True

    def _control(self, kind: int, data: bytes) -> None:
        if kind != PONG:
            self._replies += _header(PONG if kind == PING else CLOSE, len(data)) + data
        if len(self._replies) > MAX_REQUEST:
            raise Nonsense("sent more pings than messages")


def _frame(buffer: bytearray, limit: int) -> tuple[bool, int, bytes] | None:
    """Take a frame from the start of a buffer: whether it is the last of its message, its kind, its data."""
    if len(buffer) < 2:
        return None
    first, second = buffer[0], buffer[1]
    if first & 0x70 or not second & 0x80:
        raise Nonsense("sent a WebSocket frame with an extension, or without a mask")
    size, at, kind = second & 0x7F, 2, first & 0x0F
    if kind >= 8 and (size > 125 or not first & 0x80):
        raise Nonsense("sent a long control frame")
    if size >= 126:
        form = ">H" if size == 126 else ">Q"
        at += struct.calcsize(form)
        if len(buffer) < at:
            return None
        (size,) = struct.unpack_from(form, buffer, 2)
    if size > limit:
        raise Nonsense(f"announced a message of {size:,} bytes; at most {limit:,} may be")
    if len(buffer) < at + 4 + size:
        return None
    data = _unmasked(bytes(buffer[at + 4 : at + 4 + size]), bytes(buffer[at : at + 4]))
    del buffer[: at + 4 + size]
    return bool(first & 0x80), kind, data


def _unmasked(data: bytes, mask: bytes) -> bytes:
    """XOR data with the mask, repeated."""
    keys = np.frombuffer(mask * (len(data) // 4 + 1), np.uint8, len(data))
    return (np.frombuffer(data, np.uint8) ^ keys).tobytes()


def _header(kind: int, size: int) -> bytes:
    if size < 126:
        return struct.pack(">BB", 0x80 | kind, size)
    length = struct.pack(">BH", 126, size) if size < 1 << 16 else struct.pack(">BQ", 127, size)
    return bytes([0x80 | kind]) + length
