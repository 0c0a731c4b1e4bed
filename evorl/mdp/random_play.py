"""A world played at random, for what it shows by itself."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import numpy as np

from evorl.mdp.core import Array, Box, Spec, World, heads
from evorl.mdp.rows import action_form
from evorl.util.seed import Episodes, generator


def any_action(spec: Spec, legal: Array | None, draw: np.random.Generator) -> Array:
    """A random legal action, [K]."""
    dtype, _ = action_form(spec.action)
    if isinstance(spec.action, Box):
        low, high = np.array(spec.action.low), np.array(spec.action.high)
        bounded = np.isfinite(low) & np.isfinite(high)
        uniform = draw.uniform(np.where(bounded, low, 0), np.where(bounded, high, 0))
        return np.where(bounded, uniform, np.clip(draw.normal(size=low.shape), low, high)).astype(dtype)
    sizes = heads(spec.action)
    masks = [np.ones(n, bool) for n in sizes] if legal is None else np.split(legal, np.cumsum(sizes)[:-1])
    return np.array([draw.choice(np.flatnonzero(mask)) for mask in masks], dtype)


def reported(world: World, seconds: float) -> frozenset[str] | None:
    """The names of an episode's results, which are the same for every episode of a world: one is played to see them.

    None where none ends within about so many seconds, or where the world fails: whoever plays it in earnest says why.
    It is a copy that plays, so that processes forked after this share nothing that the world opens at its first step.
    """
    ends, draw = time.monotonic() + seconds, generator("reported")
    try:
        with closing(replace(world)) as own, closing(own.arena(own.sides, Episodes(0, "reported"))) as arena:
            while time.monotonic() < ends:
                now = arena.recv()
                if now.results:
                    return frozenset(now.results[0][1])
                legal = [None if now.legal is None else now.legal[slot] for slot in now.slots]
                arena.send(now.slots, np.stack([any_action(arena.spec, one, draw) for one in legal]))
    except Exception:
        return None
    return None
