"""Attributes that a checkpoint holds as they are: named once by a class, copied to a state and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

import numpy as np

from evorl.util.types import StateDict


def saved(owner: object, names: Iterable[str], prefix: str = "") -> StateDict:
    """Return copies of an object's attributes, by name; the attributes' own names begin with ``prefix``."""
    return {name: copy(getattr(owner, prefix + name)) for name in names}


def restore(owner: object, names: Iterable[str], state: Mapping[str, Any], prefix: str = "") -> None:
    """Give an object the attributes that `saved` returned. Others may hold its arrays: these are written, not replaced.

    Raises ValueError, before it changes anything, for an array of another shape.
    """
    pairs = {name: (getattr(owner, prefix + name), state[name]) for name in names}
    arrays = {name for name, pair in pairs.items() if all(isinstance(x, np.ndarray) for x in pair)}
    for name in arrays:
        held, loaded = pairs[name]
        if held.shape != loaded.shape:
            raise ValueError(f"{name}: the state has shape {loaded.shape}, this object {held.shape}")
    for name, (held, loaded) in pairs.items():
        if name in arrays:
            held[...] = loaded
        else:
            setattr(owner, prefix + name, copy(loaded))
