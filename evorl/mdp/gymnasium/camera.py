"""Pictures of gymnasium's environments, from one environment of their own that need not have a display."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from evorl.mdp.core import Array
from evorl.util import command
from evorl.util.errors import BadRequest


class Camera:
    """An environment that draws. It comes to the episode it is asked for, and steps no environment of a slot.

    With ``anew``, each episode has an environment of its own.
    """

    def __init__(self, make: Callable[..., Any], anew: bool = False) -> None:
        self._make = make
        self._anew = anew
        self.env = make(render_mode="rgb_array")
        self._seed = -1
        self.seen: Any = None  # the observation of the moment that was last drawn
        self._played: list[Any] = []

    def follow(self, seed: int, actions: Sequence[Any]) -> Array:
        """The picture after an episode's actions so far; those that follow the last call's alone are played."""
        done = len(self._played)
        if seed != self._seed or not _same(actions[:done], self._played):
            self._begin(seed)
            done = 0
        for action in actions[done:]:
            self.seen, _, *over, _ = self.env.step(action)
            if any(over):  # the episode may end before all repeats of its last action
                break
        self._played = list(actions)
        return self._draw()

    def show(self, state: Array) -> Array:
        """The picture of a classic control task's state [D]; what is not part of it (the last torque) is not drawn."""
        if self._seed < 0:
            self._begin(0)
        self.env.unwrapped.state = state
        return self._draw()

    def _begin(self, seed: int) -> None:
        if self._anew and self._seed >= 0:
            self.env.close()
            self.env = self._make(render_mode="rgb_array")
        self.seen, _ = self.env.reset(seed=seed)
        self._seed = seed

    def _draw(self) -> Array:
        """uint8 [H, W, 3]."""
        return np.ascontiguousarray(drawn(self.env, self.env.unwrapped.spec.id))

    def close(self) -> None:
        self.env.close()


def draws(env: Any) -> bool:
    """Whether an environment, or a vector environment, can give pictures."""
    return "rgb_array" in env.metadata.get("render_modes", ())


def drawn(env: Any, name: str) -> Any:
    """What an environment draws. Raises `BadRequest` where nothing can be: most need pygame, MuJoCo needs EGL."""
    try:
        with _headless():
            return env.render()
    except Exception as error:
        if find_spec("pygame") is None:  # gymnasium's own words name an extra of its own
            ways = command.install("video")
            raise BadRequest(f"{name} cannot be drawn here without pygame: {ways}") from error
        raise BadRequest(f"{name} cannot be drawn here: {error}; MuJoCo's worlds need the library EGL") from error


@contextmanager
def _headless() -> Iterator[None]:
    """Where there is no display, name drawers that need none, until the picture is drawn: children inherit nothing."""
    given = {} if "DISPLAY" in os.environ else {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}
    added = [name for name in given if name not in os.environ]
    os.environ.update({name: given[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(np.array_equal, some, others))
