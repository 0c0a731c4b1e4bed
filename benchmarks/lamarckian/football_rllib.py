"""RLlib's PPO on football; runs in the peers' environment: python football_rllib.py SETTINGS.

SETTINGS is JSON: world (the keys of evorl's football, which both programs play), games, horizon, minibatch, passes, lr,
gamma, clip, entropy and hidden (as evorl has them), cpus, seed, and steps. With steps it learns for so many, and says
seconds, steps and the mean return of the last 100 games after each batch; without, it is a worker (`common.serve`).
One process samples and learns: the games run in threads or processes of their own, all at once behind gymnasium's
vector interface, as in evorl.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import ray
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import say, serve, versions

NATURE = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]


class Games(VectorEnv):
    """Games that step together. An ended one has begun its next when it is seen next."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, world: dict[str, Any], games: int, seed: int) -> None:
        from evorl.mdp.football import Football
        from evorl.util.seed import Episodes

        world = {**world, "rewards": tuple(world["rewards"])}
        self.arena = Football(**world).arena(games, Episodes(seed))
        self.pictures = world["observation"] == "pictures"
        shape, high = ((72, 96, 4), 1.0) if self.pictures else (self.arena.spec.inputs[0].shape, np.inf)
        self.num_envs = games
        self.single_observation_space = gymnasium.spaces.Box(0.0 if self.pictures else -high, high, shape, np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(19)
        self.observation_space = batch_space(self.single_observation_space, games)
        self.action_space = batch_space(self.single_action_space, games)
        self.slots = np.arange(games)

    def look(self) -> Any:
        """What all games have come to, once all wait."""
        waits = 0
        while waits < self.num_envs:
            decisions = self.arena.recv()
            waits += len(decisions.slots)
        return decisions

    def seen(self, decisions: Any) -> Any:
        (seen,) = decisions.inputs
        return np.moveaxis(seen, 1, -1).astype(np.float32) / 255 if self.pictures else seen.copy()

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.seen(self.look()), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.arena.send(self.slots, np.asarray(actions)[:, None])
        decisions = self.look()
        reward = decisions.reward.sum(1).astype(np.float64)
        return self.seen(decisions), reward, decisions.terminated.copy(), decisions.truncated.copy(), {}

    def close_extras(self, **options: Any) -> None:
        self.arena.close()


def ppo(
    world: dict[str, Any], games: int, horizon: int, minibatch: int, passes: int, lr: float, gamma: float, clip: float,
    entropy: float, hidden: list[int], seed: int,
) -> PPOConfig:  # fmt: skip
    net: dict[str, Any] = {"fcnet_hiddens": hidden, "fcnet_activation": "relu", "vf_share_layers": True}
    if world["observation"] == "pictures":
        net = {
            "conv_filters": NATURE, "conv_activation": "relu", "head_fcnet_hiddens": hidden,
            "head_fcnet_activation": "relu", "vf_share_layers": True,
        }  # fmt: skip
    tune.register_env("football", lambda context: Games(world, context.get("num_envs", 1), seed))
    return (
        PPOConfig()
        .environment("football")
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=games, gym_env_vectorize_mode="vector_entry_point",
            rollout_fragment_length=horizon,
        )
        .learners(num_learners=0)
        .training(
            lr=lr, train_batch_size_per_learner=games * horizon, minibatch_size=minibatch, num_epochs=passes,
            gamma=gamma, lambda_=0.95, clip_param=clip, entropy_coeff=entropy, vf_loss_coeff=0.5, grad_clip=0.5,
            use_kl_loss=False,
        )
        .rl_module(model_config=DefaultModelConfig(**net))
        .debugging(seed=seed, log_level="ERROR")
    )  # fmt: skip


def iterate(algorithm: Any) -> tuple[int, float]:
    """Steps so far, and the mean return of the last games."""
    numbers = algorithm.train()["env_runners"]
    return int(numbers["num_env_steps_sampled_lifetime"]), float(numbers.get("episode_return_mean", 0.0))


def main(cpus: int, steps: int | None, **settings: Any) -> None:
    began = time.time()
    torch.set_num_threads(1)
    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    algorithm = ppo(**settings).build_algo()
    if steps is None:
        done = [0]

        def update() -> float:
            done.append(iterate(algorithm)[0])
            return done[-1] - done[-2]

        serve(update, "ray", "torch", "numpy", "gymnasium")
    else:
        rows = []
        while not rows or rows[-1][1] < steps:
            rows.append((round(time.time() - began, 2), *iterate(algorithm)))
        say({"rows": rows, "versions": versions("ray", "torch", "numpy", "gymnasium")})
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
