"""CleanRL's td3_continuous_action.py, unchanged, as a worker (see `common.serve`).

Runs in the peers' environment: python cleanrl_td3.py SETTINGS, where SETTINGS is JSON: world (a gymnasium id) and
threads (of torch). Its release is for gym 0.23, whose HalfCheetah needs a MuJoCo that is no longer there. So its
``gym`` is a stand-in with that interface around gymnasium's environment.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from contextlib import redirect_stdout
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from common import CLEANRL, say, versions

STARTS = 32  # steps with random actions, before the first gradient step


class OldEnv(gymnasium.Wrapper):
    """An environment that is seeded by a method of its own."""

    def seed(self, seed: int) -> None:
        self.first_seed = seed

    def reset(self, **options: Any) -> Any:
        options.setdefault("seed", self.__dict__.pop("first_seed", None))
        return super().reset(**options)


class OneEnv:
    """gym 0.23's SyncVectorEnv of one environment. Its steps answer the numbers of seconds on stdin."""

    num_envs = 1

    def __init__(self, make: list[Any]) -> None:
        self.env = make[0]()
        self.single_observation_space, self.single_action_space = self.env.observation_space, self.env.action_space
        self.action_space = gymnasium.vector.utils.batch_space(self.env.action_space, 1)
        self.steps, self.until, self.began = 0, 2.0 * STARTS, 0.0

    def reset(self) -> np.ndarray:
        return self.env.reset()[0][None]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        self._answer()
        seen, reward, terminated, truncated, info = self.env.step(actions[0])
        self.steps += 1
        done = terminated or truncated
        if done:
            info |= {"terminal_observation": seen, "TimeLimit.truncated": truncated}
            seen = self.env.reset()[0]
        return seen[None], np.array([reward]), np.array([done]), [info]

    def _answer(self) -> None:
        """Say the steps of a sample when its time is over, then wait for the next one."""
        if not self.began:
            if self.steps < self.until:
                return
            tell({"versions": versions("torch", "numpy", "gymnasium", "stable-baselines3")})
        elif time.perf_counter() < self.until:
            return
        else:
            tell([self.steps, time.perf_counter() - self.began])
        line = sys.stdin.readline()
        if not line:
            raise SystemExit
        self.steps, self.began = 0, time.perf_counter()
        self.until = self.began + float(line)


def tell(what: Any) -> None:
    with redirect_stdout(sys.__stdout__):
        say(what)


def stand_in() -> Any:
    """What the program uses of gym."""
    counted = gymnasium.wrappers.RecordEpisodeStatistics
    return SimpleNamespace(
        make=gymnasium.make,
        wrappers=SimpleNamespace(RecordEpisodeStatistics=lambda env: OldEnv(counted(env))),
        vector=SimpleNamespace(SyncVectorEnv=OneEnv),
        spaces=gymnasium.spaces,
    )


def main(world: str, threads: int) -> None:
    torch.set_num_threads(threads)
    sys.modules["gym"] = stand_in()
    sys.path.append(str(CLEANRL))
    program = str(CLEANRL / "cleanrl" / "td3_continuous_action.py")
    sys.argv = [program, "--env-id", world, "--learning-starts", str(STARTS), "--total-timesteps", str(10**9)]
    with TemporaryDirectory() as place, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        os.chdir(place)  # where it writes its TensorBoard files
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
