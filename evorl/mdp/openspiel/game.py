"""One episode of a game of OpenSpiel."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from evorl.mdp.core import Array, State
from evorl.mdp.openspiel.loading import Loaded, Tensor
from evorl.util.seed import generator


class SpielGame:
    """An episode whose chance is drawn from the stream of its own key."""

    def __init__(self, loaded: Loaded, tensor: Tensor, key: int) -> None:
        self.history = loaded.game.new_initial_state()
        """The ``pyspiel.State``."""
        self.moves = 0
        self.movers: Sequence[int] = ()
        self._loaded, self._tensor = loaded, tensor
        self._draw = generator("openspiel", key)
        self._settle()

    def move(self, actions: Mapping[int, Array]) -> None:
        chosen = {side: int(action[0]) for side, action in actions.items()}
        for side, action in chosen.items():
            if action not in self.history.legal_actions(side):
                raise ValueError(f"action {action} of side {side} is not legal")
        if self.history.is_simultaneous_node():
            self.history.apply_actions([chosen.get(side, 0) for side in range(self._loaded.sides)])  # 0: has no choice
        else:
            self.history.apply_action(chosen[self.movers[0]])
        self.moves += 1
        self._settle()

    def _settle(self) -> None:
        """Draw chance until a side decides or the game is over."""
        history = self.history
        while history.is_chance_node():
            outcomes, chances = zip(*history.chance_outcomes(), strict=True)
            total = list(accumulate(chances))
            history.apply_action(outcomes[min(bisect(total, self._draw.random() * total[-1]), len(total) - 1)])
        if history.is_terminal():
            self.movers = ()
        elif history.is_simultaneous_node():
            self.movers = [side for side in range(self._loaded.sides) if history.legal_actions(side)]
        else:
            self.movers = (history.current_player(),)

    def state(self, side: int) -> State:
        return state_of(self._loaded, self.history, side, self._tensor)

    def total(self, side: int) -> float:
        return float(self.history.returns()[side])

    def truncated(self, side: int) -> bool:
        return False

    def result(self, side: int) -> Mapping[str, float]:
        returns = self.history.returns()
        result = {"fitness": float(returns[side])}
        if len(returns) > 1:
            best = max(returns)
            result["win"] = (returns[side] == best) / returns.count(best)
        return result

    def close(self) -> None:
        pass


def state_of(loaded: Loaded, history: Any, side: int, tensor: Tensor) -> State:
    """What a side sees in a ``pyspiel.State`` that is neither chance nor the end: the tensor, and which side it is."""
    numbers = history.information_state_tensor if tensor == "information_state" else history.observation_tensor
    seen: tuple[Array, ...] = (np.array(numbers(side), np.float32),)
    if loaded.sides > 1:
        who = np.zeros(loaded.sides, np.float32)
        who[side] = 1
        seen += (who,)
    legal = np.zeros(loaded.choices, np.bool_)
    legal[history.legal_actions(side)] = True
    return State(seen, legal)
