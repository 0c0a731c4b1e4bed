"""EnvPool's environments by id, ``envpool/Ant-v5``, as ordinary environments of gymnasium.

EnvPool takes seeds when a pool is made, and ignores those of `reset`. So an episode with a seed has a pool of its own,
of one environment. It is the same in every slot and process, and runs resume exactly. EnvPool's threads do not help.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from evorl.mdp.gymnasium.registry import ENVPOOL
from evorl.util import command
from evorl.util.errors import BadRequest, nearest

PER_ROW = ("env_id", "players")
"""What the infos of a pool say of its rows."""


def envpool_spec(id: str) -> EnvSpec:
    """Return gymnasium's `EnvSpec` for an id that begins with `ENVPOOL`. Raises `BadRequest`."""
    try:
        import envpool
    except ImportError:
        raise BadRequest(f"{id} needs more than is installed: {command.install('envpool')}", "id") from None
    task, tasks = id.removeprefix(ENVPOOL), envpool.list_all_envs()
    if "/" in task:
        raise BadRequest(f"{id} has a name that gymnasium does not know; for football take mdp=football", "id")
    if task not in tasks:
        raise BadRequest(f"EnvPool has no {task}{nearest(task, tasks)}", "id")
    if (players := envpool.make_spec(task).config.max_num_players) > 1:
        raise BadRequest(f"{id} has {players} players, and mdp=gymnasium one", "id")
    return EnvSpec(id, entry_point=partial(EnvPoolEnv, task))


class EnvPoolEnv(gymnasium.Env[Any, Any]):
    """An environment of EnvPool; ``keys`` are EnvPool's own, such as ``max_episode_steps`` or ``stack_num``."""

    def __init__(self, task: str, render_mode: str | None = None, **keys: Any) -> None:
        self._task, self.render_mode = task, render_mode
        self._keys = keys if render_mode is None else {**keys, "render_mode": render_mode}
        self._pool = self._made(0)
        self.metadata = {"render_modes": [], "render_fps": 30, **self._pool.metadata}
        self.observation_space, self.action_space = self._pool.observation_space, self._pool.action_space

    def _made(self, seed: int) -> Any:
        import envpool

        made = envpool.make_gymnasium(self._task, num_envs=1, seed=seed, **self._keys)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of bounds that become float32
            _ = made.observation_space, made.action_space  # which a pool makes once, when it is asked
        return made

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode: that of a seed, or the pool's next one."""
        if seed is not None:
            self._pool.close()
            self._pool = self._made(seed % 2**31)
        seen, infos = self._pool.reset()
        return _first(seen), _info(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, infos = self._pool.step(np.asarray(action)[None])
        return _first(seen), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _info(infos)

    def render(self) -> Any:
        return np.asarray(self._pool.render())[0]

    def close(self) -> None:
        self._pool.close()


def _first(seen: Any) -> Any:
    """The first row of observations."""
    return {name: _first(part) for name, part in seen.items()} if isinstance(seen, dict) else np.asarray(seen)[0]


def _info(infos: dict[str, Any]) -> dict[str, Any]:
    return {name: x[0] for name, x in infos.items() if name not in PER_ROW}
