"""A state as a tree: its arrays by name, and the rest as JSON with null in their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from evorl.record import tensors
from evorl.util.types import AppendedRows, StateDict


def split(node: Any, path: tuple[str, ...], arrays: dict[str, Any], appended: dict[str, AppendedRows]) -> Any:
    """Return the state with null in place of arrays and rows, which go into ``arrays`` and ``appended`` by name."""
    if isinstance(node, AppendedRows):
        appended[_array_name(path)] = node
        return None
    if isinstance(node, np.ndarray) or tensors.is_tensor(node):
        arrays[_array_name(path)] = node
        return None
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, dict) and all(isinstance(key, str) for key in node):
        return {key: split(child, (*path, key), arrays, appended) for key, child in node.items()}
    if isinstance(node, list):
        return [_to_json(child, path) for child in node]
    return _to_json(node, path)


def _to_json(node: Any, path: tuple[str, ...]) -> Any:
    """Return a JSON scalar or nested lists of scalars. Raises TypeError for anything else."""
    if isinstance(node, list):
        return [_to_json(child, path) for child in node]
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(f"{_array_name(path)}: a {type(node).__name__} cannot be saved")


def _array_name(path: tuple[str, ...]) -> str:
    """Return the keys joined by "/"; as in a JSON pointer, "~" and "/" within a key become "~0" and "~1"."""
    return "/".join(word.replace("~", "~0").replace("/", "~1") for word in path)


def require_lists(node: Any, path: tuple[str, ...] = ()) -> None:
    """Require that no list of a loaded state has a mapping in it, as none that `split` returns. Raises TypeError."""
    if isinstance(node, dict):
        for key, child in node.items():
            require_lists(child, (*path, key))
    elif isinstance(node, list):
        for child in node:
            if isinstance(child, dict):
                raise TypeError(f"{_array_name(path)} is a list with a mapping")
            require_lists(child, path)


def require_form(state: Any, like: Any, path: tuple[str, ...] = ()) -> None:
    """Require that a loaded state has the kinds of value that ``like`` has, the state of the same object when new.

    A number in place of an integer, a mapping in place of a number and the like are found, wherever they are, before
    anything is loaded. The elements of a list of scalars are of the kind of its first one. ``like`` binds nothing where
    it is None or an array, and no keys: a new object may not have them yet, and another version may have other keys.
    Raises TypeError with the name of the value.
    """
    if isinstance(like, dict):
        if not isinstance(state, dict):
            raise TypeError(f"{_array_name(path)} is {_text(state)}, not a mapping")
        for key in like.keys() & state.keys():
            require_form(state[key], like[key], (*path, key))
    like = like.item() if isinstance(like, np.generic) else like
    kinds, name = _KINDS.get(type(like), (None, ""))
    if kinds is not None and type(state) not in kinds:
        raise TypeError(f"{_array_name(path)} is {_text(state)}, not {name}")
    if isinstance(like, list) and like and not isinstance(like[0], list):
        for element in state:
            require_form(element, like[0], path)


_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
    list: ((list,), "a list"),
}


def _text(value: Any) -> str:
    return "absent" if value is None else f"{value!r:.40}"


def insert(state: StateDict, name: str, array: Any) -> None:
    """Put an array into its place in a state."""
    *parents, last = (word.replace("~1", "/").replace("~0", "~") for word in name.split("/"))
    for word in parents:
        state = state[word]
    state[last] = array
