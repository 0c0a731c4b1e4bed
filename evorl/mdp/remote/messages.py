"""The messages of docs/remote.md: what a game may send, and what evorl sends to it.

A message is a msgpack map with its ``type``. Reading one executes nothing; every field has a type and a bound. Arrays
are binary fields, little-endian. Letters in shapes: n rows, one for each side that asks or answers; R rewards, L
entries of the legal mask, K action components, E rows that end an episode, M results.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from evorl.mdp.remote.address import MAX_TOKEN
from evorl.mdp.spec import WorldError
from evorl.util.errors import Failure, nearest
from evorl.util.text import printable

PROTOCOL = 1
MAX_HELLO = 1 << 18
"""Bytes of a game's first message."""
MAX_FRAME = 1 << 26
"""Bytes of any message."""
MAX_BATTLES, MAX_SIDES, MAX_NAMES = 4096, 256, 4096
MAX_SIZE = 1 << 24
"""Numbers of an input."""
MAX_CHOICES = 1 << 16
MAX_WHY = 500
"""Letters that are shown of a reason."""

Word = Annotated[str, Meta(min_length=1, max_length=64)]
Names = Annotated[tuple[Word, ...], Meta(max_length=MAX_NAMES)]
Sizes = Annotated[tuple[Annotated[int, Meta(ge=1, le=MAX_SIZE)], ...], Meta(max_length=8)]
Choices = Annotated[tuple[Annotated[int, Meta(ge=1, le=MAX_CHOICES)], ...], Meta(min_length=1, max_length=256)]
Bounds = Annotated[tuple[float, ...], Meta(min_length=1, max_length=MAX_NAMES)]


class Nonsense(ValueError):
    """What a game sent is not of the protocol. The message is one printable line of `MAX_WHY` letters at most."""

    def __init__(self, why: str) -> None:
        super().__init__(printable(why[:MAX_WHY]))


class Cut(OSError):
    """The other end has closed the connection, or does not read."""


class Unplayable(WorldError, Failure):
    """There is no game to play with. The message is one line."""


class _Offered(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class InputOffer(_Offered, frozen=True):
    """An array that a side observes; ``features`` may name the numbers of its first axis."""

    name: Word
    shape: Sizes
    dtype: Literal["float32", "uint8"] = "float32"
    features: Names = ()


class DiscreteOffer(_Offered, frozen=True, tag_field="kind", tag="discrete"):
    """A choice of one of ``n[k]`` for each component k; ``names`` may name the choices of each."""

    n: Choices
    names: Annotated[tuple[Names, ...], Meta(max_length=256)] = ()


class BoxOffer(_Offered, frozen=True, tag_field="kind", tag="box"):
    """A real vector within bounds; ``names`` may name its components."""

    low: Bounds
    high: Bounds
    names: Names = ()


class _Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=str.lower):
    pass


class Hello(_Message, frozen=True):
    """A game's first message: what it is, and what its sides see and do."""

    protocol: int
    token: Annotated[str, Meta(max_length=MAX_TOKEN)]
    game: Word
    inputs: Annotated[tuple[InputOffer, ...], Meta(min_length=1, max_length=64)]
    action: DiscreteOffer | BoxOffer
    sides: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=MAX_SIDES)] = ("player",)
    rewards: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=64)] = ("reward",)
    results: Annotated[tuple[Word, ...], Meta(max_length=256)] = ()
    masked: bool = False
    battles: Annotated[int, Meta(ge=1, le=MAX_BATTLES)] = 1
    repeats: bool = False
    rule: bool = False
    seconds: Annotated[float, Meta(ge=0, le=3600)] = 0.0


class Ask(_Message, frozen=True):
    """Rows of sides that must decide, or whose episode has ended."""

    heard: int  # `Begin`, `Act` and `Leave` that came before these rows
    battle: memoryview  # uint32 [n]
    side: memoryview  # uint8 [n]
    cost: memoryview  # uint32 [n]
    end: memoryview  # uint8 [n]: an `End`
    reward: memoryview  # float32 [n, R]
    inputs: Annotated[tuple[memoryview, ...], Meta(max_length=64)]  # each [n, ...]
    legal: memoryview = memoryview(b"")  # uint8 [n, L]
    results: memoryview = memoryview(b"")  # float64 [E, M]

    GOES_ON: ClassVar = 0
    TERMINATED: ClassVar = 1
    TRUNCATED: ClassVar = 2


class Failed(_Message, frozen=True):
    """The game gives up one battle."""

    battle: Annotated[int, Meta(ge=0, lt=1 << 32)]
    why: str  # `Connection` shows the beginning


_KINDS = (Hello, InputOffer, DiscreteOffer, BoxOffer, Ask, Failed)


# ------------------------------------------------------------------ from evorl


class Welcome(_Message, frozen=True):
    protocol: int = PROTOCOL


class Refused(_Message, frozen=True):
    why: str


class Begin(_Message, frozen=True):
    """Begin an episode: evorl decides for the sides ``players``, the game for the others."""

    battle: int
    seed: int
    players: tuple[int, ...]


class Act(_Message, frozen=True):
    battle: bytes  # uint32 [n]
    side: bytes  # uint8 [n]
    action: bytes  # int32 or float32 [n, K]


class Leave(_Message, frozen=True):
    """Forget a battle."""

    battle: int


_HELLO = msgspec.msgpack.Decoder(Hello)
_LATER = msgspec.msgpack.Decoder(Ask | Failed)
_ENCODER = msgspec.msgpack.Encoder()


def read_hello(frame: bytes) -> Hello:
    """Return a game's first message. Raises `Nonsense`."""
    hello: Hello = _decoded(_HELLO, frame)
    if hello.protocol != PROTOCOL:
        raise Nonsense(f"speaks protocol {hello.protocol}, and evorl speaks {PROTOCOL}")
    return hello


def read(frame: bytes) -> Ask | Failed:
    """Return a later message. Raises `Nonsense`."""
    message: Ask | Failed = _decoded(_LATER, frame)
    return message


def encoded(message: Struct) -> bytes:
    return _ENCODER.encode(message)


def _decoded(decoder: Any, frame: bytes) -> Any:
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Nonsense(f"sent a message that is no message of the protocol: {error}{_hint(str(error))}") from None


def _hint(text: str) -> str:
    """What a decoder's error may have meant, for its end; else empty."""
    if unknown := re.search(r"unknown field `([^`]{1,64})`", text):  # to compare a longer one takes long
        return nearest(unknown[1], [name for kind in _KINDS for name in kind.__struct_fields__])
    return "; there are float32 and uint8" if "enum value" in text and "dtype" in text else ""
