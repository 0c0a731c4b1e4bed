"""From the keys that a person holds to an action."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from evorl.mdp.core import Action, Array, Box, World, heads
from evorl.mdp.labels import Binding
from evorl.util.errors import BadRequest

DIGITS = "1234567890"


def bindings_of(world: World, action: Action, side: int) -> tuple[Binding, ...]:
    """The world's own keys for a side, else digits for the choices of the first component after its first choice.

    Raises `BadRequest` for continuous actions.
    """
    if isinstance(action, Box):
        raise BadRequest("its actions are continuous, and keys choose", "run")
    if own := world.bindings(side):
        return own
    names = world.action_names or tuple(tuple(map(str, range(size))) for size in heads(action))
    first = tuple(
        Binding((key,), choice, name) for key, (choice, name) in zip(DIGITS, [*enumerate(names[0])][1:], strict=False)
    )
    return (*(Binding((), 0, of[0], component) for component, of in enumerate(names)), *first)


def action_of(bindings: Sequence[Binding], action: Action, held: Collection[str], legal: Array | None) -> list[int]:
    """The choice [K] of each component: of the bindings whose keys are all held, the last of those with the most keys.

    Where a choice is not allowed (``legal`` [L]), the choice without a key is taken, else the first that is allowed.
    """
    sizes = heads(action)
    parts = [None] * len(sizes) if legal is None else np.split(legal, np.cumsum(sizes)[:-1])
    chosen = []
    for component, (size, allowed) in enumerate(zip(sizes, parts, strict=True)):
        pressed = [binding for binding in bindings if binding.component == component and {*binding.keys} <= {*held}]
        best = sorted(pressed, key=lambda binding: len(binding.keys))[-1:]
        still = [binding for binding in pressed if not binding.keys]
        order = [*(binding.choice for binding in (*best, *still)), *range(size)]
        chosen.append(next(choice for choice in order if allowed is None or allowed[choice]))
    return chosen
