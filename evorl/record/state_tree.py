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


def insert(state: StateDict, name: str, array: Any) -> None:
    """Put an array into its place in a state."""
    *parents, last = (word.replace("~1", "/").replace("~0", "~") for word in name.split("/"))
    for word in parents:
        state = state[word]
    state[last] = array
