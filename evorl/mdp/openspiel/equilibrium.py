"""How far policies are from a Nash equilibrium, as OpenSpiel computes it from their tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.openspiel.game import state_of
from evorl.mdp.openspiel.world import OpenSpiel
from evorl.util.errors import BadRequest

Policy = Callable[[tuple[Array, ...], Array], Array]
"""Inputs, each [B, ...], and legal actions [B, L] -> probabilities [B, L]."""


def nash_conv(world: OpenSpiel, policies: Sequence[Policy]) -> float:
    """Return what the sides could gain, added up, by a best response each (NashConv; Lanctot et al. 2017).

    Every side draws one of ``policies`` for a game, with equal chances and on its own. The number is 0 at a Nash
    equilibrium. The whole game is searched, so it has to be small. Raises `BadRequest` for a game with simultaneous
    moves.
    """
    from open_spiel.python.algorithms import exploitability, policy_aggregator

    game = world.loaded.game
    tables = [table(world, policy) for policy in policies]
    sides = range(world.loaded.sides)
    aggregator = policy_aggregator.PolicyAggregator(game)
    weights = [np.full(len(tables), 1 / len(tables))] * len(sides)
    together = tables[0] if len(tables) == 1 else aggregator.aggregate(sides, [tables] * len(sides), weights)
    return float(exploitability.nash_conv(game, together))


def table(world: OpenSpiel, policy: Policy) -> Any:
    """Return a policy as OpenSpiel's ``TabularPolicy``: its probabilities in every information state.

    The same policy has all sides. Raises `BadRequest` for a game with simultaneous moves, or if a side does not observe
    all that it could recall.
    """
    import pyspiel
    from open_spiel.python.policy import TabularPolicy

    loaded = world.loaded
    kind = loaded.game.get_type()
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise BadRequest(f"{world.game} has simultaneous moves, and NashConv is of games in turns", "game")
    tensor = loaded.tensor(world.observe)
    if tensor != "information_state" and kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION:
        raise BadRequest("a policy that forgets has no table; take information_state", "observe")
    made = TabularPolicy(loaded.game)
    states = [state_of(loaded, history, history.current_player(), tensor) for history in made.states]
    inputs = tuple(np.stack(x) for x in zip(*(state.inputs for state in states), strict=True))
    legal = np.stack([state.legal for state in states if state.legal is not None])
    made.action_probability_array[:] = policy(inputs, legal)
    return made
