"""An Atari game as deep learning sees it, for gymnasium.

Pictures are prepared as in Mnih et al. 2015 (Methods, "Preprocessing"): the brighter of two frames in a row, grey,
``size`` x ``size`` (there 84), the last four of them; an action holds for four frames. An episode begins with up to 30
frames without action, then with fire where the game has it, and goes on until the game is over (or half an hour of it
has passed), whatever lives are lost. Actions are those that do something in the game, and with probability ``sticky``
the one before is taken instead in a frame (Machado et al. 2018, section 5). Rewards are points.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv

from evorl.mdp.core import Array


class Game(gymnasium.Env[Array, int]):
    """One row of ale-py's vector environment, which prepares pictures in C++.

    All its rows in one would not do: it neither says nor sets its state, and gives an ended row no seed of its own.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (gymnasium's own form)

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
        """The newest picture that is seen, uint8 [size, size, 3]."""
        return np.repeat(self._seen[-1][..., None], 3, axis=-1)

    def close(self) -> None:
        self._row.close()
