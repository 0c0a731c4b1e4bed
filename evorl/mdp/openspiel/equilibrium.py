"""How far policies are from a Nash equilibrium, as OpenSpiel computes it from their tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
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
    return nash_conv_of([table(world, policy) for policy in policies])


def nash_conv_of(tables: Sequence[Any], mixtures: Sequence[Sequence[float]] | None = None) -> float:
    """Return NashConv if each side draws one of the tables for a game, with its chances in ``mixtures`` [P, S], or with
    equal ones."""
    from open_spiel.python.algorithms import exploitability

    return float(exploitability.nash_conv(tables[0].game, mixed(tables, mixtures), use_cpp_br=True))


def mixed(tables: Sequence[Any], mixtures: Sequence[Sequence[float]] | None = None) -> Any:
    """Return a table that plays like a mixture, of which a side draws one for a whole game (Kuhn 1953).

    In an information state a side has drawn table k with a probability that is proportional to its chance in the
    mixture, times the probability that its own decisions lead there.
    """
    made, game = copy(tables[0]), tables[0].game
    probabilities = np.stack([table.action_probability_array for table in tables])  # [S, states, L]
    chances = np.ones((game.num_players(), len(tables))) if mixtures is None else np.array(mixtures)
    for row, state in enumerate(made.states):
        side, past = state.current_player(), game.new_initial_state()
        drawn = chances[side].copy()
        for action in state.history():
            if past.current_player() == side:
                drawn *= probabilities[:, made.state_index(past), action]
            past.apply_action(action)
        if not drawn.any():  # no game comes here
            drawn[:] = 1
        made.action_probability_array[row] = drawn @ probabilities[:, row] / drawn.sum()
    return made


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
