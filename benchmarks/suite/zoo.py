"""Stable-Baselines3 at the settings of its zoo: one training run with evaluations.

Runs in the peers' environment: python zoo.py SETTINGS, where SETTINGS is JSON: algorithm (of the zoo), world (a
Gymnasium id), steps, seed, every (steps between evaluations) and episodes (of each). It prints one line of JSON: steps
[K] and returns [K, episodes] of the evaluations of the deterministic policy, the settings that were used, and versions.

The training is rl_zoo3's own program. The zoo has settings for version 4 of the MuJoCo worlds, which are used for
version 5 too.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import rl_zoo3
import yaml
from rl_zoo3.train import train

from benchmarks.speed.common import versions


def settings_of(algorithm: str, world: str) -> dict[str, Any]:
    """The zoo's settings."""
    text = (importlib.resources.files(rl_zoo3) / "hyperparams" / f"{algorithm}.yml").read_text()
    by_world: dict[str, dict[str, Any]] = yaml.safe_load(text)
    name = world if world in by_world else world.replace("-v5", "-v4")
    return by_world[name]


def play(algorithm: str, world: str, steps: int, seed: int, every: int, episodes: int) -> dict[str, Any]:
    settings = settings_of(algorithm, world)
    with tempfile.TemporaryDirectory() as folder:
        place, tempfile.tempdir = Path(folder), folder  # Stable-Baselines3 makes a folder of its own for its log
        (place / "settings.yml").write_text(yaml.safe_dump({world: settings}))
        words = {
            "algo": algorithm, "env": world, "conf-file": place / "settings.yml", "n-timesteps": steps, "seed": seed,
            "eval-freq": every, "eval-episodes": episodes, "log-folder": folder, "device": "cpu", "num-threads": 1,
            "verbose": 0,
        }  # fmt: skip
        sys.argv = ["train", *(str(x) for name, value in words.items() for x in (f"--{name}", value))]
        with contextlib.redirect_stdout(io.StringIO()):  # a line for every evaluation, and the settings
            train()
        (file,) = place.glob("**/evaluations.npz")
        evaluations = np.load(file)
        # a signal ends rl_zoo3's program early, as if it had finished
        if evaluations["timesteps"][-1] + every <= steps:
            raise SystemExit(
                f"it was evaluated for the last time after {evaluations['timesteps'][-1]} of {steps} steps"
            )
        curve = {"steps": evaluations["timesteps"].tolist(), "returns": evaluations["results"].tolist()}
    packages = ("rl_zoo3", "stable-baselines3", "sb3-contrib", "torch", "numpy", "gymnasium")
    return {**curve, "settings": settings, "versions": versions(*packages)}


if __name__ == "__main__":
    print(json.dumps(play(**json.loads(sys.argv[1]))))
