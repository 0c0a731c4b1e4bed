"""RLlib's PPO until CartPole-v1 is solved; runs in the peers' environment: python rllib.py SETTINGS.

SETTINGS is JSON: threshold, iterations (the budget), seed, runners and learners (processes besides this one), envs (of
each), cpus (that Ray may count on) and threads (of torch).
The hyper-parameters are those of RLlib's own tuned example (rllib/examples/algorithms/ppo/cartpole_ppo.py of
ray-project/ray); its wheel does not hold the file.
"""

from __future__ import annotations

import json
import sys

import ray
import torch
from common import say
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

EPISODES = 100


def tuned(runners: int, learners: int, envs: int, seed: int) -> PPOConfig:
    net = DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True)
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=envs)
        .learners(num_learners=learners)
        .training(lr=3e-4, num_epochs=6, vf_loss_coeff=0.01)
        .rl_module(model_config=net)
        .reporting(metrics_num_episodes_for_smoothing=EPISODES)
        .debugging(seed=seed, log_level="ERROR")
    )


def main(threshold: float, iterations: int, cpus: int, threads: int, **layout: int) -> None:
    torch.set_num_threads(threads)
    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    algorithm = tuned(**layout).build_algo()
    reached, steps = False, 0
    for _ in range(iterations):
        numbers = algorithm.train()["env_runners"]
        steps = int(numbers["num_env_steps_sampled_lifetime"])
        episodes, mean = int(numbers["num_episodes_lifetime"]), float(numbers["episode_return_mean"])
        if reached := episodes >= EPISODES and mean >= threshold:
            break
    say({"reached": reached, "steps": steps})
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
