"""From the keys that a person holds to an action."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from evorl.mdp.core import Action, Array, Box, World, heads
from evorl.mdp.labels import HIGHEST, LOWEST, STILL, Binding

DIGITS = "1234567890"
PAIRS = (("ArrowRight", "ArrowLeft"), ("ArrowUp", "ArrowDown"), ("d", "a"), ("w", "s"), ("e", "q"), ("r", "f"))
"""Keys for the highest and the lowest value of each component of a continuous action."""


def bindings_of(world: World, action: Action, side: int) -> tuple[Binding, ...]:
    """The world's own keys for a side, else a pair of keys for each component of a continuous action, else digits for
    the choices of the first component after its first choice.
    """
    if own := world.bindings(side):
        return own
    if isinstance(action, Box):
        return _pairs(world, action)
    names = world.action_names or tuple(tuple(map(str, range(size))) for size in heads(action))
    first = tuple(
        Binding((key,), choice, name) for key, (choice, name) in zip(DIGITS, [*enumerate(names[0])][1:], strict=False)
    )
    return (*(Binding((), 0, of[0], component) for component, of in enumerate(names)), *first)


def _pairs(world: World, action: Box) -> tuple[Binding, ...]:
    count = len(action.low)
    names = world.action_names[0] if world.action_names else tuple(f"number {k + 1}" for k in range(count))
    held = [
        Binding((key,), choice, f"{name} {sign}", component)
        for component, (name, pair) in enumerate(zip(names, PAIRS, strict=False))
        for key, choice, sign in zip(pair, (HIGHEST, LOWEST), "+-", strict=True)
    ]
    return (*(Binding((), STILL, name, component) for component, name in enumerate(names)), *held)


def action_of(bindings: Sequence[Binding], action: Action, held: Collection[str], legal: Array | None) -> Array:
    """The choice [K] of each component: of the bindings whose keys are all held, the last of those with the most keys.

    Where a choice is not allowed (``legal`` [L]), the choice without a key is taken, else the first that is allowed. Of
    a continuous action the values [K] that the choices stand for.
    """
    levels = _levels(action) if isinstance(action, Box) else []
    sizes = [len(each) for each in levels] or heads(action)
    parts = [None] * len(sizes) if legal is None else np.split(legal, np.cumsum(sizes)[:-1])
    chosen = []
    for component, (size, allowed) in enumerate(zip(sizes, parts, strict=True)):
        pressed = [binding for binding in bindings if binding.component == component and {*binding.keys} <= {*held}]
        best = sorted(pressed, key=lambda binding: len(binding.keys))[-1:]
        still = [binding for binding in pressed if not binding.keys]
        order = [*(binding.choice for binding in (*best, *still)), *range(size)]
        chosen.append(next(choice for choice in order if allowed is None or allowed[choice]))
    return np.array([each[choice] for each, choice in zip(levels, chosen, strict=True)] if levels else chosen)


def _levels(action: Box) -> list[tuple[float, float, float]]:
    """What `LOWEST`, `STILL` and `HIGHEST` stand for in each component. An end that is nowhere is -1 or 1."""
    lows = [low if math.isfinite(low) else -1.0 for low in action.low]
    highs = [high if math.isfinite(high) else 1.0 for high in action.high]
    return [(low, min(max(0.0, low), high), high) for low, high in zip(lows, highs, strict=True)]
