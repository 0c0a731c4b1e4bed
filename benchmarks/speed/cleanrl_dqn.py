"""CleanRL's dqn.py or dqn_atari.py, unchanged: the return of every training episode.

Runs in the peers' environment: python cleanrl_dqn.py SETTINGS, where SETTINGS is JSON: program (dqn or dqn_atari),
world (a gymnasium id), seed, threads (of torch) and words (its command line). Its release is for gymnasium 0.28, whose
vector environment resets an environment within the step that ends its episode, and whose wrappers had other names. So
its ``gymnasium`` is a stand-in with that interface around the environments of today.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from contextlib import redirect_stdout, suppress
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3.common.atari_wrappers
import stable_baselines3.common.buffers  # noqa: F401 with the gymnasium of today
import torch
from common import CLEANRL, say, versions

with suppress(ImportError):  # only for Atari games
    import ale_py

    gymnasium.register_envs(ale_py)

EPISODES: list[tuple[int, float]] = []
"""Steps so far and return of each episode; of games of Atari, whole ones."""


class OneEnv:
    """gymnasium 0.28's SyncVectorEnv of one environment."""

    num_envs = 1

    def __init__(self, make: list[Any]) -> None:
        sys.modules["gymnasium"] = gymnasium  # the program has its own by now; environments import the real one
        self.env, self.steps = make[0](), 0
        self.single_observation_space, self.single_action_space = self.env.observation_space, self.env.action_space

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        return np.asarray(self.env.reset(seed=seed)[0])[None], {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(actions[0])
        self.steps += 1
        infos: dict[str, Any] = {}
        if "episode" in info:
            EPISODES.append((self.steps, float(info["episode"]["r"])))
        if terminated or truncated:
            infos = {"final_info": [info], "final_observation": [np.asarray(seen)]}
            seen = self.env.reset()[0]
        return np.asarray(seen)[None], np.array([reward]), np.array([terminated]), np.array([truncated]), infos

    def close(self) -> None:
        self.env.close()


def stand_in() -> Any:
    """What the programs use of gymnasium."""
    wrappers = gymnasium.wrappers
    return SimpleNamespace(
        make=gymnasium.make,
        spaces=gymnasium.spaces,
        vector=SimpleNamespace(SyncVectorEnv=OneEnv),
        wrappers=SimpleNamespace(
            RecordEpisodeStatistics=wrappers.RecordEpisodeStatistics,
            ResizeObservation=wrappers.ResizeObservation,
            GrayScaleObservation=wrappers.GrayscaleObservation,
            FrameStack=wrappers.FrameStackObservation,
        ),
    )


def main(program: str, world: str, seed: int, threads: int, words: list[str]) -> None:
    torch.set_num_threads(threads)
    sys.path.append(str(CLEANRL))
    path = str(CLEANRL / "cleanrl" / f"{program}.py")
    sys.argv = [path, "--env-id", world, "--seed", str(seed), *words]
    with TemporaryDirectory() as place, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        os.chdir(place)  # where it writes its TensorBoard files
        importlib.import_module("torch.utils.tensorboard")  # before gymnasium is another one

        sys.modules["gymnasium"] = stand_in()
        runpy.run_path(path, run_name="__main__")
    say({"episodes": EPISODES, "versions": versions("torch", "numpy", "gymnasium", "stable-baselines3")})


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
