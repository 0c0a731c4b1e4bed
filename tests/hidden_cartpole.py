"""CartPole without its velocities: the cart's place and the pole's angle alone. A policy needs memory to balance it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

SEEN = [0, 2]


class HiddenCartPole(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        whole = self.env.observation_space
        assert isinstance(whole, gymnasium.spaces.Box)
        self.observation_space = gymnasium.spaces.Box(whole.low[SEEN], whole.high[SEEN], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[SEEN]
