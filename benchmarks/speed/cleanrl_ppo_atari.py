"""CleanRL's ppo_atari.py, unchanged and at its own settings, as a worker (see `old_gym`).

Runs in the peers' environment: python cleanrl_ppo_atari.py SETTINGS, where SETTINGS is JSON: world (a gymnasium id) and
threads (of torch). It answers between two updates.
"""

from __future__ import annotations

import json
import sys

import ale_py
import gymnasium
from gymnasium import wrappers
from old_gym import OldEnv, SyncVectorEnv, run

if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    gymnasium.register_envs(ale_py)
    SyncVectorEnv.every = SyncVectorEnv.warm_up = 8 * 128  # its environments and steps of an update
    SyncVectorEnv.packages = (*SyncVectorEnv.packages, "ale-py")
    run(
        "ppo_atari.py",
        ["--env-id", settings["world"]],
        settings["threads"],
        ResizeObservation=wrappers.ResizeObservation,
        GrayScaleObservation=wrappers.GrayscaleObservation,
        FrameStack=lambda env, count: OldEnv(wrappers.FrameStackObservation(env, count)),
    )
