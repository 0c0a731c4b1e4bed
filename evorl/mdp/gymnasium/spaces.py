"""Conversion of gymnasium's spaces to evorl's inputs and actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces

from evorl.mdp.core import Action, Array, Box, Discrete, Input, MultiDiscrete, Spec

Read = Callable[[Any], Any]
"""Function that extracts one input from an observation or a batch of observations."""


class Unsupported(ValueError):
    """evorl does not support a space; the message names it."""


def spec_of(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> tuple[Spec, list[Read]]:
    """Return the `Spec` of an environment, and one reader per input. Raises `Unsupported`."""
    parts = observation(observations)
    return Spec(tuple(part for part, _ in parts), action(actions)), [read for _, read in parts]


def action(space: spaces.Space[Any]) -> Action:
    """Return evorl's action space. Raises `Unsupported`."""
    match space:
        case spaces.Discrete():
            return Discrete(int(space.n))
        case spaces.MultiDiscrete():
            return MultiDiscrete(tuple(int(n) for n in space.nvec.ravel()))
        case spaces.MultiBinary():
            return MultiDiscrete((2,) * int(np.prod(space.shape)))
        case spaces.Box() if space.dtype.kind == "f" and space.low.size:
            return Box(_floats(space.low), _floats(space.high))
    raise Unsupported(f"the action space {space}")


def encode(space: spaces.Space[Any], actions: Array) -> Sequence[Any]:
    """Return actions [B, K] as a new list of B actions of the environment."""
    rows = encode_all(space, actions)
    choices: list[Any] = rows.tolist() if isinstance(space, spaces.Discrete) else list(rows)
    return choices


def encode_all(space: spaces.Space[Any], actions: Array) -> Array:
    """Return actions [B, K] as one new batched action of B environments."""
    if isinstance(space, spaces.Discrete):
        return np.asarray(actions[:, 0] + space.start, space.dtype)
    rows = np.array(actions, space.dtype).reshape(-1, *(space.shape or ()))
    if isinstance(space, spaces.Box) and rows.dtype.itemsize > 4:
        np.clip(rows, space.low, space.high, out=rows)  # a bound as float32 may lie outside the space, by rounding
    return rows + space.start if isinstance(space, spaces.MultiDiscrete) else rows


def observation(space: spaces.Space[Any]) -> list[tuple[Input, Read]]:
    """Return the inputs of an observation space: parts of a Dict or Tuple by path, Discrete one-hot, images [C, H, W].

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
    """Convert uint8 [H, W] or [H, W, C] to [C, H, W]; the last axis is taken for channels if it is the smallest."""
    if len(shape) == 2:
        return (), (1, *shape), "uint8", _same
    if shape[2] < min(shape[:2]):
        return (), (shape[2], *shape[:2]), "uint8", _channels_first
    return (), shape, "uint8", _same


def _channels_first(image: Array) -> Array:
    return np.moveaxis(image, -1, -3)


def _same(value: Any) -> Any:
    return value


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in values.ravel())
