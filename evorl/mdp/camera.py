"""Pictures of gymnasium's environments, from one environment of their own that need not have a display."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evorl.mdp.core import Array
from evorl.util.errors import BadRequest


class Camera:
    """An environment that draws. It comes to the episode it is asked for, and steps no environment of a slot."""

    def __init__(self, make: Callable[..., Any]) -> None:
        if "DISPLAY" not in os.environ:
            os.environ.setdefault("MUJOCO_GL", "egl")
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        self._env = make(render_mode="rgb_array")
        self._seed = -1
        self._played: list[Any] = []

    def follow(self, seed: int, actions: Sequence[Any]) -> Array:
        """The picture after an episode's actions so far; those that follow the last call's alone are played."""
        done = len(self._played)
        if seed != self._seed or not _same(actions[:done], self._played):
            self._env.reset(seed=seed)
            self._seed, done = seed, 0
        for action in actions[done:]:
            self._env.step(action)
        self._played = list(actions)
        return self._draw()

    def show(self, state: Array) -> Array:
        """The picture of a classic control task's state [D]; what is not part of it (the last torque) is not drawn."""
        if self._seed < 0:
            self._env.reset(seed=0)
            self._seed = 0
        self._env.unwrapped.state = state
        return self._draw()

    def _draw(self) -> Array:
        """uint8 [H, W, 3]. Raises `BadRequest` where what draws is not installed."""
        import gymnasium

        try:
            picture = self._env.render()
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise BadRequest(f"drawing needs more than is installed: pip install pygame-ce ({error})") from error
        return np.ascontiguousarray(picture)

    def close(self) -> None:
        self._env.close()


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(np.array_equal, some, others))
