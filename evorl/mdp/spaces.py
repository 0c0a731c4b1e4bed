"""Gymnasium's spaces in our terms: what an environment shows, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces

from evorl.mdp.core import Action, Array, Box, Discrete, Input, MultiDiscrete

Read = Callable[[Any], Any]
"""Picks one input out of an observation, in that input's form."""


class Unsupported(ValueError):
    """A space that has no form here; the message names it."""


def action(space: spaces.Space[Any]) -> Action:
    """Raises `Unsupported`."""
    match space:
        case spaces.Discrete():
            return Discrete(int(space.n))
        case spaces.MultiDiscrete():
            return MultiDiscrete(tuple(int(n) for n in space.nvec.ravel()))
        case spaces.MultiBinary():
            return MultiDiscrete((2,) * int(np.prod(space.shape)))
        case spaces.Box() if space.dtype.kind == "f":
            return Box(_floats(space.low), _floats(space.high))
    raise Unsupported(f"the action space {space}")


def encode(space: spaces.Space[Any], actions: Array) -> Sequence[Any]:
    """Actions [B, K] as B actions of the environment, in memory of their own."""
    if isinstance(space, spaces.Discrete):
        choices: list[int] = (actions[:, 0] + space.start).tolist()
        return choices
    rows = np.array(actions, space.dtype).reshape(-1, *(space.shape or ()))
    return list(rows + space.start if isinstance(space, spaces.MultiDiscrete) else rows)


def observation(space: spaces.Space[Any]) -> list[tuple[Input, Read]]:
    """The inputs an observation holds: parts of a Dict or Tuple by their path, a Discrete one-hot, images [C, H, W].

    Raises `Unsupported`.
    """
    return [(Input("/".join(path) or "observation", shape, dtype), read) for path, shape, dtype, read in _parts(space)]


def _parts(space: spaces.Space[Any]) -> list[tuple[tuple[str, ...], tuple[int, ...], str, Read]]:
    match space:
        case spaces.Dict():
            return _nested(space.spaces)
        case spaces.Tuple():
            return _nested(dict(enumerate(space.spaces)))
        case spaces.Discrete():
            return [((), (int(space.n),), "float32", _one_hot(int(space.n), int(space.start)))]
        case spaces.Box() if space.dtype == np.uint8 and len(space.shape) in (2, 3):
            return [_image(space.shape)]
        case spaces.Box():
            return [((), space.shape or (1,), "float32", _same)]
    raise Unsupported(f"the observation space {space}")


def _nested(members: Mapping[Any, spaces.Space[Any]]) -> list[Any]:
    return [
        ((str(key), *path), shape, dtype, _inside(key, read))
        for key, member in members.items()
        for path, shape, dtype, read in _parts(member)
    ]


def _inside(key: Any, read: Read) -> Read:
    pick = itemgetter(key)
    return lambda whole: read(pick(whole))


def _one_hot(n: int, start: int) -> Read:
    rows = np.eye(n, dtype=np.float32)
    return lambda choice: rows[choice - start]


def _image(shape: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[int, ...], str, Read]:
    """uint8 [H, W] or [H, W, C] as [C, H, W]; the smallest side is taken for the channels."""
    if len(shape) == 2:
        return (), (1, *shape), "uint8", _same
    if shape[2] < min(shape[:2]):
        return (), (shape[2], *shape[:2]), "uint8", lambda image: image.transpose(2, 0, 1)
    return (), shape, "uint8", _same


def _same(value: Any) -> Any:
    return value


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in values.ravel())
