"""gym 0.23 around gymnasium's environments, for programs of CleanRL's release, as workers (see `common.serve`).

The release is for gym 0.23, whose HalfCheetah needs a MuJoCo that is no longer there and whose Atari games an ale-py
without wheels for today's Python. So the ``gym`` of its programs is a stand-in, and they themselves are unchanged.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from common import CLEANRL, say, versions


class OldEnv(gymnasium.Wrapper):
    """An environment that is seeded by a method of its own."""

    def seed(self, seed: int) -> None:
        self.first_seed = seed

    def reset(self, **options: Any) -> Any:
        options.setdefault("seed", self.__dict__.pop("first_seed", None))
        return super().reset(**options)


class SyncVectorEnv:
    """Environments one after another. Their steps answer the numbers of seconds on stdin, whenever a multiple of
    ``every`` steps is done, ``warm_up`` ones before the first."""

    every, warm_up, packages = 1, 64, ("torch", "numpy", "gymnasium", "stable-baselines3")

    def __init__(self, make: Sequence[Callable[[], Any]]) -> None:
        self.envs = [make_env() for make_env in make]
        self.num_envs, first = len(self.envs), self.envs[0]
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.action_space = gymnasium.vector.utils.batch_space(first.action_space, self.num_envs)
        self.steps, self.until, self.began = 0, 0.0, 0.0

    def reset(self) -> np.ndarray:
        return np.stack([env.reset()[0] for env in self.envs])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        if self.steps % self.every == 0:
            self._answer()
        steps = [self._step(env, action) for env, action in zip(self.envs, actions, strict=True)]
        self.steps += self.num_envs
        seen, reward, done, info = zip(*steps, strict=True)
        return np.stack(seen), np.array(reward), np.array(done), list(info)

    def _step(self, env: Any, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            info |= {"terminal_observation": seen, "TimeLimit.truncated": truncated}
            seen = env.reset()[0]
        return seen, reward, terminated or truncated, info

    def _answer(self) -> None:
        """Say the steps of a sample when its time is over, then wait for the next one."""
        if not self.began:
            if self.steps < self.warm_up:
                return
            tell({"versions": versions(*self.packages)})
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


def run(name: str, arguments: Sequence[str], threads: int, **more: Any) -> None:
    """Run a program of CleanRL's. ``more``: wrappers of environments that it takes from gym."""
    torch.set_num_threads(threads)
    counted = gymnasium.wrappers.RecordEpisodeStatistics
    sys.modules["gym"] = SimpleNamespace(
        make=gymnasium.make,
        wrappers=SimpleNamespace(RecordEpisodeStatistics=lambda env: OldEnv(counted(env)), **more),
        vector=SimpleNamespace(SyncVectorEnv=SyncVectorEnv),
        spaces=gymnasium.spaces,
    )
    sys.path.append(str(CLEANRL))
    program = str(CLEANRL / "cleanrl" / name)
    sys.argv = [program, *arguments, "--total-timesteps", str(10**9)]
    with TemporaryDirectory() as place, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        os.chdir(place)  # where it writes its TensorBoard files
        runpy.run_path(program, run_name="__main__")
