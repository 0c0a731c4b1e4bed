"""Ray Tune's PBT over RLlib's PPO on our Pong; runs in the peers' environment: python tune.py SETTINGS.

SETTINGS is JSON: seconds, fitness (at which it ends), rounds (of a game), population, interval (steps between a
member's decisions), seed, began (when this program was called), net (of RLlib's default model).
Every member is a process of its own with one thread; its games are our vectorised simulator behind gymnasium's vector
interface, so that none is stepped in Python. PPO has 32 games, batches of 8192, minibatches of 1024 and 2 passes, the
rest as conf/tuned/pong_ppo has it. Says the seconds, steps of all members and best fitness of each result.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import ray
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import say, versions

GAMES, BATCH, MINIBATCH, PASSES = 32, 8192, 1024, 2
SCORE = "env_runners/episode_return_mean"


class Games(VectorEnv):
    """Games in lockstep. An ended one has begun its next when it is seen next, one step into it."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, games: int, seed: int) -> None:
        from evorl.mdp.pong import Pong
        from evorl.util.seed import Episodes

        self.num_envs = games
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (10,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, games)
        self.action_space = batch_space(self.single_action_space, games)
        self.arena = Pong().arena(games, Episodes(seed))
        self.slots = np.arange(games)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.arena.recv().inputs[0].copy(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.arena.send(self.slots, np.asarray(actions)[:, None])
        decisions = self.arena.recv()
        reward = decisions.reward[:, 0].astype(np.float64)
        return decisions.inputs[0].copy(), reward, decisions.terminated.copy(), np.zeros(len(reward), bool), {}


def games(context: Any) -> Games:
    return Games(context.get("num_envs", 1), context["seed"])


class Progress(tune.Callback):
    """What every result says, and whether the search is over."""

    def __init__(self, began: float, seconds: float, fitness: float, rounds: int) -> None:
        self.began, self.seconds, self.fitness, self.rounds = began, seconds, fitness, rounds
        self.steps: dict[str, int] = {}
        self.rows: list[tuple[float, int, float]] = []
        self.best = 0.0

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        numbers = result["env_runners"]
        self.steps[trial.trial_id] = int(numbers["num_env_steps_sampled_lifetime"])
        score = float(numbers.get("episode_return_mean", -self.rounds))  # none before a game has ended
        self.best = max(self.best, (score + self.rounds) / (2 * self.rounds))
        self.rows.append((round(time.time() - self.began, 2), sum(self.steps.values()), self.best))

    def over(self) -> bool:
        return time.time() - self.began > self.seconds or self.best >= self.fitness


class Stop(tune.Stopper):
    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def __call__(self, trial_id: str, result: Any) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.progress.over()


def ppo(seed: int, net: dict[str, Any]) -> PPOConfig:
    return (
        PPOConfig()
        .environment("pong", env_config={"seed": seed})
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=GAMES, gym_env_vectorize_mode="vector_entry_point",
            rollout_fragment_length=BATCH // GAMES,
        )
        .learners(num_learners=0)
        .training(
            lr=tune.uniform(1e-5, 1e-2), vf_loss_coeff=tune.uniform(0.0, 1.0), train_batch_size_per_learner=BATCH,
            minibatch_size=MINIBATCH, num_epochs=PASSES, gamma=0.995, lambda_=0.95, clip_param=0.2, entropy_coeff=0.008,
            grad_clip=0.5, use_kl_loss=False,
        )
        .rl_module(model_config=DefaultModelConfig(**net))
        .debugging(log_level="ERROR")
    )  # fmt: skip


def main(
    seconds: float, fitness: float, rounds: int, population: int, interval: int, seed: int, began: float,
    net: dict[str, Any],
) -> None:  # fmt: skip
    os.environ["TUNE_DISABLE_STRICT_METRIC_CHECKING"] = "1"
    system = {"worker_niceness": 0}  # else whatever else the machine does goes before them
    ray.init(
        num_cpus=population, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _system_config=system
    )
    tune.register_env("pong", games)
    progress = Progress(began, seconds, fitness, rounds)
    scheduler = tune.schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=max(1, interval // BATCH),
        hyperparam_mutations={"lr": tune.uniform(1e-5, 1e-2), "vf_loss_coeff": tune.uniform(0.0, 1.0)},
        quantile_fraction=0.25,
        require_attrs=False,  # no game ends within the first batches
        synch=False,
    )
    config = ppo(seed, net)
    with tempfile.TemporaryDirectory() as folder:
        tune.Tuner(
            config.algo_class,
            param_space=config,
            tune_config=tune.TuneConfig(metric=SCORE, mode="max", scheduler=scheduler, num_samples=population),
            run_config=tune.RunConfig(stop=Stop(progress), callbacks=[progress], verbose=0, storage_path=folder),
        ).fit()
    say({"rows": progress.rows, "versions": versions("ray", "torch", "numpy", "gymnasium")})
    ray.shutdown()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
