"""What one side of a world observes, does and is rewarded for, as plain data: all that networks are built from.

Letters in shapes are those of `evorl.mdp.core`, which exports these names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.util.errors import BadRequest

LARGEST = float(np.finfo(np.float32).max)
RESERVED_NAMES = ("episodes", "episode_length", "stochastic_return")
"""Metric names that every run reports beside a world's results, as does ``return_`` plus a reward's name."""


class WorldError(RuntimeError):
    """A world failed permanently. The message ends with the world's traceback if there is one."""


class EpisodeFailed(WorldError):
    """An episode failed in a step as often as it may. It has no result; with other actions the world may not fail."""


def check_name(name: object) -> None:
    """Raise `WorldError` if a reward or a result cannot have this name, because it becomes part of a metric name."""
    if not isinstance(name, str) or not re.fullmatch(r"[^/\s]+", name):
        raise WorldError(f"{name!r} cannot name a reward or a result: names have no spaces and no slashes")
    if name in RESERVED_NAMES or name.startswith("return_"):
        raise WorldError(f"{name!r} is a metric of every run; give the reward or result another name")


def check_result_names(names: Iterable[str]) -> None:
    """Raise `BadRequest` at ``results`` if numbers of infos with these names cannot be results.

    ``fitness`` can: it is the environment's own then.
    """
    for name in names:
        try:
            check_name(name)
        except WorldError as error:
            raise BadRequest(str(error), "results") from None
        if name in ("return", "length"):
            raise BadRequest(f"{name} is a result of every episode", "results")


@dataclass(frozen=True)
class Input:
    """One named observation array, without batch axis. uint8 [C, H, W] is an image.

    ``stacked``: the first axis holds the newest frames of the episode, oldest first. An episode begins with its first
    frame in all places. A replay then keeps each frame once, and raises `WorldError` if a state is no such stack.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    stacked: bool = False


@dataclass(frozen=True)
class Discrete:
    """One choice out of n. Actions are int64 [B, 1]."""

    n: int


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, one of ``nvec[k]`` for component k. Actions are int64 [B, K]."""

    nvec: tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """A real vector within bounds, which may be infinite. Actions are float32 [B, K].

    A bound becomes infinite if no float32 is beyond it: programs name their largest number where they mean no bound.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bounds = [math.copysign(math.inf, x) if abs(x) >= LARGEST else x for x in getattr(self, name)]
            object.__setattr__(self, name, tuple(bounds))


Action = Discrete | MultiDiscrete | Box


def heads(action: Action) -> tuple[int, ...]:
    """Return the sizes of the categorical heads of an action space; empty for a Box."""
    match action:
        case Discrete(n):
            return (n,)
        case MultiDiscrete(nvec):
            return nvec
        case Box():
            return ()


def first_choices(action: Action) -> NDArray[np.int64]:
    """Return where the choices of each head begin in a mask of all heads, [K]; [0] for a Box."""
    return np.cumsum([0, *heads(action)[:-1]])


class SideSpec(NamedTuple):
    """What one side of a game has of the inputs and actions of a `Spec`, which have room for those of every side."""

    inputs: tuple[Input | None, ...]
    """Of each input, what the side sees of it: all, the first numbers of a row, or nothing. The rest is 0."""
    action: Action
    """Its own actions: it lacks the last choices of a head, the last heads, or the last components of a Box."""


@dataclass(frozen=True)
class Spec:
    """The observations, actions and rewards of one side of a world. Networks are built from it alone.

    ``masked``: every state has a legal-action mask [L], L = sum(heads). ``players``: number of sides of a game.
    ``who`` names a float32 row among the inputs whose first numbers, one for each side, tell which side it is: 1 for
    that one, 0 for others. Where it is empty, no side can have a policy of its own. ``each``: what each side has of the
    inputs and actions; empty: all of them.
    """

    inputs: tuple[Input, ...]
    action: Action
    rewards: tuple[str, ...] = ("reward",)
    players: int = 1
    masked: bool = False
    who: str = ""
    each: tuple[SideSpec, ...] = ()

    def __post_init__(self) -> None:
        for name in self.rewards:
            check_name(name)
        if self.who and not any(
            entry.name == self.who and entry.dtype == "float32" and len(entry.shape) == 1
            and entry.shape[0] >= self.players > 1
            for entry in self.inputs
        ):  # fmt: skip
            raise WorldError(f"who={self.who!r} must name a float32 row of inputs with a number for each side")
        if self.each and (len(self.each) != self.players or not self.who):
            raise WorldError("each must have a SideSpec for every side of a game, which who tells apart")

    def of_side(self, side: int) -> SideSpec:
        """What a side has of the inputs and actions."""
        return self.each[side] if self.each else SideSpec(self.inputs, self.action)
