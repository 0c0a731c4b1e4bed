"""Random play: random legal actions, and the names of a world's results."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import numpy as np

from evorl.mdp.begin import begin
from evorl.mdp.core import Array, Box, Spec, World, heads
from evorl.mdp.decision_arrays import action_format
from evorl.mdp.forms import NoResult
from evorl.util.errors import BadRequest
from evorl.util.heartbeat import heartbeat
from evorl.util.seed import Episodes, generator

PATIENCE_S = 5.0
"""Approximate limit on the wall time of a random episode that shows a world's results."""


def random_action(spec: Spec, legal: Array | None, draw: np.random.Generator) -> Array:
    """Return a random legal action [K]."""
    dtype, _ = action_format(spec.action)
    if isinstance(spec.action, Box):
        low, high = np.array(spec.action.low), np.array(spec.action.high)
        bounded = np.isfinite(low) & np.isfinite(high)
        uniform = draw.uniform(np.where(bounded, low, 0), np.where(bounded, high, 0))
        return np.where(bounded, uniform, np.clip(draw.normal(size=low.shape), low, high)).astype(dtype)
    sizes = heads(spec.action)
    masks = [np.ones(n, bool) for n in sizes] if legal is None else np.split(legal, np.cumsum(sizes)[:-1])
    return np.array([draw.choice(np.flatnonzero(mask)) for mask in masks], dtype)


def result_names(world: World) -> frozenset[str] | None:
    """Play one random episode and return the names of its results, which are the same for all episodes.

    Returns None if no episode ends within about `PATIENCE_S`, or if the world fails (training will report the cause).
    A copy of the world plays, so that processes forked later share nothing that a world opens at its first step.
    """
    try:
        return _first_results(world)
    except Exception:
        return None


def check_asked(world: World) -> None:
    """Play one random episode as `result_names` does. Raises `BadRequest` where its last info lacks a result."""
    try:
        _first_results(world)
    except NoResult as error:
        raise BadRequest(str(error), "mdp.results") from None
    except Exception:
        return  # training will report the cause


def _first_results(world: World) -> frozenset[str] | None:
    ends, draw = time.monotonic() + PATIENCE_S, generator("reported")
    with closing(replace(world)) as own, closing(begin(own, own.sides, Episodes(0, "reported"))) as arena:
        while time.monotonic() < ends:
            heartbeat()
            decisions = arena.recv()
            if decisions.results:
                return frozenset(decisions.results[0][1])
            legal = [None if decisions.legal is None else decisions.legal[slot] for slot in decisions.slots]
            arena.send(decisions.slots, np.stack([random_action(arena.spec, mask, draw) for mask in legal]))
    return None
