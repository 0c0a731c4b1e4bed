"""A world of Atari's shape that costs nothing to step: ``gymnasium.make("pictures:Pictures-v0")``.

4 x 84 x 84 bytes and 6 actions, random pictures that take turns, episodes of 500 steps.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

PICTURES = 64


class Pictures(gymnasium.Env[np.ndarray, int]):
    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def __init__(self) -> None:
        self.pictures = np.random.default_rng(0).integers(0, 256, (PICTURES, 4, 84, 84), np.uint8)
        self.t = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self._picture(), float(action == self.t % 6), False, False, {}

    def _picture(self) -> np.ndarray:
        return self.pictures[self.t % PICTURES].copy()


gymnasium.register("Pictures-v0", Pictures, max_episode_steps=500)
