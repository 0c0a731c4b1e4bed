"""Conversion of gymnasium's spaces to evorl's inputs and actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from evorl.mdp.core import Action, Array, Box, Discrete, Input, MultiDiscrete, Spec
from evorl.mdp.forms import Form, Mismatch


@dataclass(frozen=True)
class Read:
    """Extracts one input from an observation, or from a batch of observations, after a check of its form."""

    form: Form
    convert: Callable[[Array], Array]
    path: tuple[Any, ...] = ()  # of a part of a Dict or Tuple

    @property
    def channels_last(self) -> bool:
        """Whether what it returns is a picture [C, H, W] with channels last in memory."""
        return self.convert is _channels_first

    def __call__(self, whole: Any, batch: tuple[int, ...] = (), rows: Array | None = None, watch: str = "") -> Array:
        """Return the input [*batch, ...]; of a batch [B, ...] only these rows, if they are given.

        ``watch``: see `Form.fit`. Raises `Mismatch`.
        """
        try:
            for key in self.path:
                whole = whole[key]
        except (LookupError, TypeError):
            raise _lacking(self.path) from None
        if rows is not None:
            whole, batch = np.asarray(whole)[rows], (len(rows),)
        return self.convert(self.form.fit(whole, batch, watch))


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
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return [choice + start for choice in actions[:, 0].tolist()]  # without arithmetic of NumPy, which takes longer
    return list(encode_all(space, actions))


def encode_all(space: spaces.Space[Any], actions: Array) -> Array:
    """Return actions [B, K] as one new batched action of B environments."""
    if isinstance(space, spaces.Discrete):
        return np.asarray(actions[:, 0] + space.start, space.dtype)
    rows = np.array(actions, space.dtype)
    if rows.shape[1:] != space.shape:
        rows = rows.reshape(-1, *(space.shape or ()))
    if isinstance(space, spaces.Box) and rows.dtype.itemsize > 4:
        np.clip(rows, space.low, space.high, out=rows)  # a bound as float32 may lie outside the space, by rounding
    return rows + space.start if isinstance(space, spaces.MultiDiscrete) else rows


def observation(space: spaces.Space[Any]) -> list[tuple[Input, Read]]:
    """Return the inputs of an observation space: parts of a Dict or Tuple by path, Discrete one-hot, images [C, H, W].

    Raises `Unsupported`.
    """
    parts = _parts(space)
    names = [_joined(read.path) for _, _, read in parts]
    return [
        (Input(name, shape, dtype), replace(read, form=read.form.named(f"the input {name!r}")))
        for name, (shape, dtype, read) in zip(names, parts, strict=True)
    ]


def check_members(space: spaces.Space[Any], seen: Any, path: tuple[Any, ...] = ()) -> None:
    """Raise `Mismatch` unless an observation has the parts that its space declares, and no others."""
    named = hasattr(seen, "keys")
    if isinstance(space, spaces.Dict):
        members: Mapping[Any, spaces.Space[Any]] = space.spaces
        keys = [*seen] if named else None
    elif isinstance(space, spaces.Tuple):
        members = dict(enumerate(space.spaces))
        keys = None if named or not np.iterable(seen) else [number for number, _ in enumerate(seen)]
    else:
        return
    if keys is None:
        kind = "dict" if isinstance(space, spaces.Dict) else "tuple"
        raise Mismatch(f"{_joined(path)!r} is declared a {kind} of {len(members)}, not a {type(seen).__name__}")
    for key in keys:
        if key not in members:
            raise Mismatch(f"the observation has {_joined((*path, key))!r}, which its space does not declare")
    for key, member in members.items():
        if key not in keys:
            raise _lacking((*path, key))
        check_members(member, seen[key], (*path, key))


def _lacking(path: tuple[Any, ...]) -> Mismatch:
    return Mismatch(f"the observation lacks {_joined(path)!r}, which its space declares")


def _joined(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path)) or "observation"


def _parts(space: spaces.Space[Any]) -> list[tuple[tuple[int, ...], str, Read]]:
    """Return shape and dtype of each input, and what reads it."""
    match space:
        case spaces.Dict():
            return _nested(space.spaces)
        case spaces.Tuple():
            return _nested(dict(enumerate(space.spaces)))
        case spaces.Discrete():
            n, start = int(space.n), int(space.start)
            form = Form("", (), np.int64, (start, start + n - 1))
            return [((n,), "float32", Read(form, _one_hot(n, start)))]
        case spaces.Box() if space.dtype == np.uint8 and len(space.shape) in (2, 3):
            return [_image(space.shape)]
        case spaces.Box() if space.dtype.kind in "fiub":
            convert = _same if space.shape else _with_axis
            return [(space.shape or (1,), "float32", Read(Form("", space.shape, space.dtype), convert))]
    raise Unsupported(f"the observation space {space}")


def _nested(members: Mapping[Any, spaces.Space[Any]]) -> list[tuple[tuple[int, ...], str, Read]]:
    return [
        (shape, dtype, replace(read, path=(key, *read.path)))
        for key, member in members.items()
        for shape, dtype, read in _parts(member)
    ]


def _one_hot(n: int, start: int) -> Callable[[Array], Array]:
    rows = np.eye(n, dtype=np.float32)
    return lambda choice: rows[choice.astype(np.int64) - start]


def _image(shape: tuple[int, ...]) -> tuple[tuple[int, ...], str, Read]:
    """Convert uint8 [H, W] or [H, W, C] to [C, H, W]; the last axis is taken for channels if it is the smallest."""
    form = Form("", shape, np.uint8)
    if len(shape) == 2:
        return (1, *shape), "uint8", Read(form, _with_channel)
    if shape[2] < min(shape[:2]):
        return (shape[2], *shape[:2]), "uint8", Read(form, _channels_first)
    return shape, "uint8", Read(form, _same)


def _channels_first(image: Array) -> Array:
    return np.moveaxis(image, -1, -3)


def _with_channel(image: Array) -> Array:
    return image[..., None, :, :]


def _with_axis(number: Array) -> Array:
    return number[..., None]


def _same(value: Array) -> Array:
    return value


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in values.ravel())
