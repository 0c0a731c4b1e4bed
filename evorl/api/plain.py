"""Values of Python as plain data: numbers, texts, lists and mappings, as config files and command lines hold them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from evorl.util.errors import BadRequest


def plain(value: Any, key: str = "") -> Any:
    """A value as plain data: arrays as lists, paths as texts, dataclasses as mappings. Raises `BadRequest`."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    for kinds, kind in _SCALARS:
        if isinstance(value, kinds):
            return kind(value)
    if isinstance(value, os.PathLike):
        return plain(os.fspath(value), key)
    if hasattr(value, "tolist"):  # an array, or a tensor
        return plain(value.tolist(), key)
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {plain(name, key): plain(part, f"{key}.{name}".lstrip(".")) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(part, key) for part in value]
    what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    raise BadRequest(f"expected a number, a text, a list or a mapping, got {what}", key)


_SCALARS: tuple[tuple[Any, Any], ...] = (
    (np.bool_, bool), (int | np.integer, int), (float | np.floating, float), (str, str.__str__),
)  # fmt: skip
"""Kinds of numbers and texts, of NumPy and of enumerations, and what makes them Python's own."""
