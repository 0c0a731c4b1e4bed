"""Save the attributes of a Python simulator as plain data, and restore them in another instance.

Arrays, numbers, strings, NumPy generators, and lists, tuples and dictionaries of those are saved. Spaces, functions,
classes and enumerations are assumed equal in the other instance. Anything else cannot be saved; nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from evorl.mdp.core import Array
from evorl.util.types import StateDict

_MADE = (Space, EnvSpec, Enum, type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, np.dtype)
_ASIDE = ("spec", "render_mode")  # attributes of a vector environment that are no state


class NotPlainData(TypeError):
    """An attribute is no plain data; the message names the attribute and its type."""


def save(env: VectorEnv[Any, Any, Any]) -> StateDict:
    """Return the environment's state. Raises `NotPlainData`."""
    arrays: dict[str, Array] = {}
    tree = _encode(env, type(env).__name__, arrays)
    return {"tree": json.dumps(tree), "arrays": arrays}


def restore(env: VectorEnv[Any, Any, Any], state: StateDict) -> None:
    """Write a state into an environment; arrays and generators in place, so that references to them stay valid."""
    _decode(env, json.loads(state["tree"]), state["arrays"])


def _encode(value: Any, where: str, arrays: dict[str, Array]) -> Any:
    """Return a value as JSON: a scalar as itself, anything else as {kind: content}, an array by its name."""

    def inside(items: Mapping[Any, Any]) -> dict[str, Any]:
        return {str(name): _encode(item, f"{where}.{name}", arrays) for name, item in items.items()}

    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        arrays[where] = np.array(value)
        return {"array" if isinstance(value, np.ndarray) else "scalar": where}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, _MADE):
        return {"made": type(value).__name__}
    if isinstance(value, VectorEnv):
        return {"env": inside({name: item for name, item in vars(value).items() if name not in _ASIDE})}
    if isinstance(value, np.random.Generator):
        return {"generator": json.loads(json.dumps(value.bit_generator.state, default=np.ndarray.tolist))}
    if type(value) is dict and all(type(name) is str for name in value):
        return {"dict": inside(value)}
    if type(value) in (list, tuple):
        return {type(value).__name__: inside(dict(enumerate(value)))}
    raise NotPlainData(f"{where} is a {type(value).__module__}.{type(value).__qualname__}")


def _decode(old: Any, code: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the value of a JSON code; arrays, generators and environments are written into the old value."""
    if not isinstance(code, dict):
        return code
    ((kind, content),) = code.items()
    match kind:
        case "array":
            return _written(old, np.asarray(arrays[content]))
        case "scalar":
            return np.asarray(arrays[content])[()]
        case "made":
            return old
        case "generator":
            old.bit_generator.state = content
            return old
        case "env":
            vars(old).update({name: _decode(vars(old).get(name), each, arrays) for name, each in content.items()})
            return old
        case "dict":
            had = old if isinstance(old, dict) else {}
            return {name: _decode(had.get(name), each, arrays) for name, each in content.items()}
    had = dict(enumerate(old)) if isinstance(old, list | tuple) else {}
    items = [_decode(had.get(number), each, arrays) for number, each in enumerate(content.values())]
    return tuple(items) if kind == "tuple" else items


def _written(old: Any, array: Array) -> Array:
    alike = isinstance(old, np.ndarray) and (old.shape, old.dtype) == (array.shape, array.dtype)
    if not alike or not old.flags.writeable:
        return array.copy()
    old[...] = array
    return np.asarray(old)
