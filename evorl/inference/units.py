"""The units of a file's actions, which are those of the environment: the numbers of its choices, and its bounds.

A policy counts choices from 0, and an environment may count from another number (``Discrete(4, start=5)``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evorl.mdp.core import Action, Array, Spec, World, heads
from evorl.util.errors import BadRequest

Encode = Callable[[Array], Array]
"""From actions [B, K] as a policy has them to those that the environment takes."""


def environment_units(world: World, spec: Spec, action: Action, side: int | None) -> Encode:
    """Return what turns a policy's actions into those that the environment takes of a side; None: of every side.

    ``spec``: of all sides; ``action``: what the policy decides. Where it is not what each of its sides has, the units
    are those of all sides. Raises `BadRequest` where these would count choices from several numbers.
    """
    sides = range(spec.players) if side is None else (side,)
    encoders = [world.environment_actions(number) for number in sides]
    starts = [start_of(encode, spec.action) for encode in encoders]
    if all(spec.of_side(number).action == action for number in sides) and len({*starts}) == 1:
        return encoders[0]
    if any(map(any, starts)):
        told = " and ".join(str([*start]) for start in dict.fromkeys(starts))
        raise BadRequest(
            f"the sides of this network count their choices from {told}, and a file counts from one; "
            "a network of each side (rl.policies=each) can be exported",
            "run",
        )
    return lambda actions: actions


def start_of(encode: Encode, action: Action) -> tuple[int, ...]:
    """The number that the environment gives to the first choice of each component; empty for a Box."""
    count = len(heads(action))
    return tuple(encode(np.zeros((1, count), np.int64)).reshape(-1).tolist()) if count else ()
