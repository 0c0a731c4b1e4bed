"""An Atari game with the usual preprocessing, as a gymnasium environment.

Pictures as in Mnih et al. 2015 (Methods, "Preprocessing"): the maximum of two consecutive frames, grey, ``size`` x
``size`` (84 in the paper), the last four of them; an action holds for four frames. An episode starts with up to 30
frames without action, then fire if the game has it. It ends when the game is over or after half an hour of play, not
when a life is lost. Actions are those that have an effect in the game; with probability ``sticky`` a frame repeats
the previous action (Machado et al. 2018, section 5). Rewards are points.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv

from evorl.mdp.core import Array


class Game(gymnasium.Env[Array, int]):
    """A vector environment of ale-py with one row; it preprocesses pictures in C++.

    One environment with all slots as rows is not possible: its state cannot be read or set, and an ended row cannot be
    given a seed of its own.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (gymnasium requires this form)

    def __init__(self, game: str, sticky: float = 0.25, size: int = 84, render_mode: str | None = None) -> None:
        self._row = AtariVectorEnv(
            game, 1, repeat_action_probability=sticky, img_height=size, img_width=size, reward_clipping=False,
            num_threads=1,
        )  # fmt: skip
        self.observation_space = self._row.single_observation_space
        self.action_space = self._row.single_action_space
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        seen, _ = self._row.reset(seed=None if seed is None else np.array([seed]))
        self._seen = seen[0]
        return self._seen, {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, _ = self._row.step(np.array([action]))
        self._seen = seen[0]
        return self._seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> Array:
        """Return the newest picture of the observation, uint8 [size, size, 3]."""
        return np.repeat(self._seen[-1][..., None], 3, axis=-1)

    def close(self) -> None:
        self._row.close()
