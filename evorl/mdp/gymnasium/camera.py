"""Pictures of gymnasium environments, drawn by a separate environment; no display is needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from typing import Any

import numpy as np

from evorl.mdp.action_log import copied
from evorl.mdp.core import Array, WorldError
from evorl.mdp.restarts import PAUSES_S
from evorl.util import command
from evorl.util.errors import BadRequest


class Camera:
    """A separate environment that draws the episode of a slot by playing its actions again.

    It never steps the environment of a slot. ``new_env_per_episode`` makes a new environment for each episode.
    """

    def __init__(self, make: Callable[..., Any], new_env_per_episode: bool = False) -> None:
        self._make = make
        self._new_env_per_episode = new_env_per_episode
        self.env = make(render_mode="rgb_array")
        self._seed = -1
        self.seen: Any = None  # the observation of the last picture
        self._played: list[Any] = []

    def follow(self, seed: int, actions: Sequence[Any]) -> Array:
        """Return the picture after an episode's actions so far; plays only the actions added since the last call.

        Where the environment fails, a new one plays them from the start. Raises `WorldError` when three have failed.
        """
        for attempt in count(1):
            try:
                self._play(seed, actions)
                break
            except Exception as error:
                name = self.env.unwrapped.spec.id
                if attempt > len(PAUSES_S):
                    raise WorldError(f"{name} failed {attempt} times in the film of seed {seed}: {error!r}") from error
                with suppress(Exception):  # it may be broken
                    self.env.close()
                self.env, self._seed, self._played = self._make(render_mode="rgb_array"), -1, []
        return self._draw()

    def _play(self, seed: int, actions: Sequence[Any]) -> None:
        done = len(self._played)
        if seed != self._seed or not _equal(actions[:done], self._played):
            self._begin(seed)
            done = 0
        for action in actions[done:]:
            self.seen, _, *over, _ = self.env.step(copied(action))
            if any(over):  # the episode may end before all repeats of its last action
                break
        self._played = list(actions)

    def show(self, state: Array) -> Array:
        """Return the picture of a classic control task's state [D]; the last torque is not drawn."""
        if self._seed < 0:
            self._begin(0)
        self.env.unwrapped.state = state
        return self._draw()

    def _begin(self, seed: int) -> None:
        if self._new_env_per_episode and self._seed >= 0:
            self.env.close()
            self.env = self._make(render_mode="rgb_array")
        self.seen, _ = self.env.reset(seed=seed)
        self._seed = seed

    def _draw(self) -> Array:
        """uint8 [H, W, 3]."""
        return np.ascontiguousarray(rendered(self.env, self.env.unwrapped.spec.id))

    def close(self) -> None:
        self.env.close()


def can_render(env: Any) -> bool:
    """Return whether an environment, or a vector environment, declares the render mode rgb_array."""
    return "rgb_array" in env.metadata.get("render_modes", ())


def rendered(env: Any, name: str) -> Any:
    """Return ``env.render()``. Raises `BadRequest` if drawing fails: most need pygame, MuJoCo needs EGL."""
    try:
        with _headless():
            return env.render()
    except Exception as error:
        if find_spec("pygame") is None:  # gymnasium's message names an extra of gymnasium
            ways = command.install("video")
            raise BadRequest(f"{name} cannot be drawn here without pygame: {ways}") from error
        raise BadRequest(f"{name} cannot be drawn here: {error}; MuJoCo's worlds need the library EGL") from error


@contextmanager
def _headless() -> Iterator[None]:
    """Without a display, select renderers that need none while the picture is drawn; restore the variables after."""
    variables = {} if "DISPLAY" in os.environ else {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}
    added = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _equal(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(np.array_equal, some, others))
