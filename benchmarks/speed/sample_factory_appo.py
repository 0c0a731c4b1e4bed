"""Sample Factory's APPO on an Atari game, with its own wrappers and network, as a worker (see `common.serve`).

Runs in the peers' environment, with `common.SAMPLE_FACTORY` on its path: python sample_factory_appo.py SETTINGS, where
SETTINGS is JSON: world (its name of the game), rollouts (in a gradient step), horizon, envs and workers. Each sample
gives its processes time to run, and stops them afterwards. Steps are those that its learner has learned from.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from tempfile import TemporaryDirectory
from typing import Any

import ale_py.registration
import gymnasium
from common import say, versions
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sf_examples.atari.atari_utils import make_atari_env
from sf_examples.atari.train_atari import parse_atari_args

WARM_UP = 5  # gradient steps

# here, since its processes import this file; ale-py does not do it for a gymnasium before 1.0
if "PongNoFrameskip-v4" not in gymnasium.registry:
    ale_py.registration.register_v0_v4_envs()
    ale_py.registration.register_v5_envs()


def make(*words: Any, **more: Any) -> Any:
    return make_atari_env(*words, **more)


class Steps(AlgoObserver):
    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        print("step", training_iteration_since_resume, flush=True)


def train(folder: str, world: str, rollouts: int, horizon: int, envs: int, workers: int) -> None:
    """One pass over each batch, while the environments play on; the rest as its authors set it for Atari.

    So its loss is PPO's: V-trace without a recurrent core ends its learner with an AttributeError in 2.1.1.
    """
    words = {
        "algo": "APPO", "env": world, "experiment": "speed", "train_dir": folder, "device": "cpu",
        "num_workers": workers, "num_envs_per_worker": envs // workers, "worker_num_splits": 2, "async_rl": True,
        "rollout": horizon, "batch_size": rollouts * horizon, "num_batches_per_epoch": 1, "num_epochs": 1,
        "train_for_env_steps": 10**10, "save_every_sec": 10**6,
        "heartbeat_reporting_interval": 10**6,  # it stands still while others are measured
    }  # fmt: skip
    register_env(world, make)
    _, runner = make_runner(parse_atari_args([f"--{name}={x}" for name, x in words.items()]))
    runner.register_observer(Steps())
    runner.init()
    runner.run()


def main(text: str) -> None:
    """Let the processes of a training run for each number of seconds on stdin, between two of its gradient steps."""
    settings = json.loads(text)
    size = settings["rollouts"] * settings["horizon"]
    with TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "train", json.dumps({"folder": folder, **settings})]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert process.stdout is not None
        steps = (int(line.split()[1]) for line in process.stdout if line.startswith("step "))
        try:
            while next(steps) < WARM_UP:
                pass
            os.killpg(process.pid, signal.SIGSTOP)
            say({"versions": versions("sample-factory", "torch", "numpy", "gymnasium", "ale-py")})
            for line in sys.stdin:
                os.killpg(process.pid, signal.SIGCONT)
                first = next(steps)  # those that waited in the pipe have passed when it comes
                began = time.perf_counter()
                last, time_s = first, began
                while last == first or time_s - began < float(line):
                    last, time_s = next(steps), time.perf_counter()
                os.killpg(process.pid, signal.SIGSTOP)
                say([(last - first) * size, time_s - began])
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(**json.loads(sys.argv[2]))
    else:
        main(sys.argv[1])
