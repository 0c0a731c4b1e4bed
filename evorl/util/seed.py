"""Random numbers keyed by what they are for.

Every random number of a run comes from a key made of words such as
``(run seed, "act", iteration)``. A key never names a process, a thread or an
arrival order, so the same run draws the same numbers on any machine layout and
after any interruption, whatever ``PYTHONHASHSEED`` says.

Episode keys keep one bit for their purpose: training keys are even, evaluation
keys are odd, so the two sets cannot overlap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MUL1 = np.uint64(0xBF58476D1CE4E5B9)
_MUL2 = np.uint64(0x94D049BB133111EB)


def key(*words: int | str) -> int:
    """Hash words to 64 bits, the same in every process and on every platform."""
    text = "\x1f".join(f"{type(word).__name__}:{word}" for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(*words: int | str) -> np.random.Generator:
    """A NumPy generator (Philox) for the purpose that the words name."""
    return np.random.Generator(np.random.Philox(key=key(*words)))


def mix(x: Keys) -> Keys:
    """SplitMix64's finaliser (Steele et al. 2014), elementwise: a bijection of 64-bit words."""
    with _wrapping():
        x = (x ^ (x >> np.uint64(30))) * _MUL1
        x = (x ^ (x >> np.uint64(27))) * _MUL2
        return x ^ (x >> np.uint64(31))


def uniform(keys: Keys, counter: Any) -> NDArray[np.float64]:
    """The draw number ``counter`` (an integer or an array of them) of each key's own stream, in [0, 1).

    A stream is a pure function of (key, counter): vectorised worlds keep the two
    integers of a slot as their whole generator state.
    """
    with _wrapping():
        words = mix(keys + _GOLDEN * (np.asarray(counter, np.uint64) + np.uint64(1)))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(seed: int, n: int) -> int:
    """Return a whole number from 0 to n - 1, drawn evenly by a key."""
    return int(uniform(np.asarray(seed, np.uint64), 0) * n)


@dataclass(frozen=True)
class Episodes:
    """The keys of a run's episodes: episode ``n`` of slot ``s`` always has the same key.

    ``evaluation`` sets the lowest bit of every key, training clears it.
    """

    seed: int
    purpose: str = "train"
    evaluation: bool = False

    def __call__(self, slot: Any, episode: Any) -> Keys:
        """Keys of the given slots' episodes; both arguments broadcast."""
        return self._keys(np.uint64(key(self.seed, self.purpose)), slot, episode)

    def _keys(self, base: Any, slot: Any, episode: Any) -> Keys:
        """Of slots whose purposes have these hashes."""
        with _wrapping():
            keys = mix(mix(base + _GOLDEN * np.asarray(slot, np.uint64)) + np.asarray(episode, np.uint64))
        return np.asarray((keys & ~np.uint64(1)) | np.uint64(self.evaluation), np.uint64)


@dataclass(frozen=True)
class Shifted(Episodes):
    """Keys with shifted numbers: slot 0, episode 0 has the key of slot ``first_slot``, episode ``first_episode``."""

    first_slot: int = 0
    first_episode: int = 0

    def __call__(self, slot: Any, episode: Any) -> Keys:
        return super().__call__(np.asarray(slot) + self.first_slot, np.asarray(episode) + self.first_episode)


@dataclass(frozen=True)
class Grouped(Episodes):
    """The keys of groups of ``width`` slots, each with a purpose: slot s of all is slot s mod width of its group.

    Groups of the same purpose play the same episodes.
    """

    width: int = 1
    groups: tuple[str, ...] = ("train",)

    def __call__(self, slot: Any, episode: Any) -> Keys:
        group, within = np.divmod(np.asarray(slot), self.width)
        return self._keys(self._bases[group], within, episode)

    @cached_property
    def _bases(self) -> Keys:
        """Hashed once: worlds ask for keys whenever an episode ends."""
        return np.array([key(self.seed, name) for name in self.groups], np.uint64)


def seed31(episode_key: int) -> int:
    """A 31-bit seed for a simulator that takes no larger one; keeps the evaluation bit."""
    return int(((int(episode_key) >> 34) << 1) | (int(episode_key) & 1))


@contextmanager
def _wrapping() -> Iterator[None]:
    with np.errstate(over="ignore"):  # 64-bit arithmetic wraps on purpose
        yield
