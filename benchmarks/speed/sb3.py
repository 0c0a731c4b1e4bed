"""Stable-Baselines3's learners as a worker (``rate``, see `common.serve`), until a world is solved (``solve``), with
the return of every training episode (``curve``), or as policies that answer the time of a decision (``predict``).

Runs in the peers' environment: python sb3.py rate|solve|curve|predict SETTINGS, where SETTINGS is JSON: world (a
gymnasium id or "pong"), envs, threads, seed, ppo (keyword arguments of its PPO; "lin_X" falls linearly from X to 0),
hidden and activation (of the policy; its own defaults if not given), and for ``solve`` budget (steps) and threshold.
With ``algorithm`` (TD3, SAC or DQN) the settings are world, threads, seed, hidden and ``arguments`` of that class, for
DQN with its ``policy``. ``curve`` needs budget (steps) too; the world may be a game of Atari.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from common import microseconds, say, serve, versions
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, create_mlp
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from evorl.mdp.pong import Pong
from evorl.util.seed import Episodes

OFF_POLICY_STEPS = 64  # environment steps, each with a gradient step, that count as one update
PACKAGES = ("stable-baselines3", "torch", "numpy", "gymnasium")
EPISODES = 100  # that the criterion averages over, as SB3's own logs do


class PongGames(VecEnv):
    """Our vectorised Pong in Stable-Baselines3's interface; all arrays are copies, as its DummyVecEnv gives them."""

    def __init__(self, games: int, seed: int) -> None:
        self.arena = Pong().arena(games, Episodes(seed))
        view = self.arena.recv().inputs[0]
        super().__init__(games, Box(-np.inf, np.inf, view.shape[1:], np.float32), Discrete(3))

    def reset(self) -> np.ndarray:
        return self.arena.recv().inputs[0].copy()

    def step_async(self, actions: np.ndarray) -> None:
        self.arena.send(self.arena.recv().slots, actions[:, None])

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        decisions = self.arena.recv()
        return (
            decisions.inputs[0].copy(),
            decisions.reward[:, 0].copy(),
            decisions.terminated.copy(),
            [{} for _ in decisions.slots],
        )

    def close(self) -> None:
        self.arena.close()

    # A game is a row of the arena's arrays, not an object of its own that could be asked, set or called.

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name != "render_mode":  # they draw no pictures: None
            raise AttributeError(f"a game has no attribute {attr_name!r} of its own")
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"a game has no attribute {attr_name!r} of its own")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"a game has no method {method_name!r} of its own")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Solved(BaseCallback):
    """Stops the training once the mean return of the last 100 episodes reaches the threshold."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold, self.reached = threshold, False

    def _on_step(self) -> bool:
        if self.locals["dones"].any():
            last = self.model.ep_info_buffer
            self.reached = len(last) == EPISODES and sum(episode["r"] for episode in last) >= self.threshold * EPISODES
        return not self.reached


class Returns(BaseCallback):
    """Notes the steps so far and the return of each training episode; of games of Atari, whole ones and all points."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.episodes += [(self.num_timesteps, float(r)) for r in ended]
        return True


class Trunk(BaseFeaturesExtractor):
    """Hidden layers that actor and critic share."""

    def __init__(self, space: Any, hidden: list[int], activation: type[torch.nn.Module]) -> None:
        super().__init__(space, hidden[-1])
        self.layers = torch.nn.Sequential(*create_mlp(space.shape[0], -1, hidden, activation))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(observations)
        return out


def model(
    world: str, envs: int, threads: int, ppo: dict[str, Any], seed: int = 0, device: str = "cpu", **net: Any
) -> PPO:
    torch.set_num_threads(threads)
    games = PongGames(envs, seed) if world == "pong" else make_vec_env(world, envs, seed)
    policy: dict[str, Any] = {}
    if net:
        layers = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "silu": torch.nn.SiLU}
        policy = {"net_arch": net["hidden"], "activation_fn": layers[net["activation"]]}
    if net.get("shared"):
        trunk = {"hidden": net["hidden"], "activation": policy["activation_fn"]}
        policy |= {"net_arch": [], "features_extractor_class": Trunk, "features_extractor_kwargs": trunk}
    arguments = {name: scheduled(value) for name, value in ppo.items()}
    return PPO("MlpPolicy", games, policy_kwargs=policy, seed=seed, device=device, **arguments)


def scheduled(value: Any) -> Any:
    """A setting as rl-baselines3-zoo writes it: "lin_X" is X times the share of the budget that is left."""
    if not isinstance(value, str):
        return value
    start = float(value.removeprefix("lin_"))
    falling: Callable[[float], float] = lambda left: left * start  # noqa: E731
    return falling


def off_policy(
    world: str,
    threads: int,
    algorithm: str,
    arguments: dict[str, Any],
    hidden: list[int],
    seed: int = 0,
    device: str = "cpu",
) -> BaseAlgorithm:
    """TD3, SAC or DQN, one gradient step for each environment step."""
    torch.set_num_threads(threads)
    env, more = games(world, seed), {"policy_kwargs": {"net_arch": hidden}, "seed": seed, "device": device}
    if algorithm == "DQN":
        return DQN(arguments.pop("policy"), env, **more, **arguments)
    if algorithm == "SAC":
        return SAC("MlpPolicy", env, **more, **arguments)
    size = env.action_space.shape
    noise = NormalActionNoise(np.zeros(size), 0.1 * np.ones(size))
    return TD3("MlpPolicy", env, action_noise=noise, **more, **arguments)


def games(world: str, seed: int) -> VecEnv:
    """An environment; of an Atari game with the wrappers of the published protocol."""
    if "NoFrameskip" not in world:
        return make_vec_env(world, 1, seed)
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    return VecFrameStack(make_atari_env(world, 1, seed), 4)


def made(settings: dict[str, Any]) -> Any:
    return off_policy(**settings) if "algorithm" in settings else model(**settings)


def rate(settings: dict[str, Any]) -> None:
    learner = made(settings)
    steps = OFF_POLICY_STEPS if "algorithm" in settings else learner.n_steps * learner.n_envs

    def update() -> int:
        learner.learn(steps, reset_num_timesteps=False)
        return steps

    serve(update, *PACKAGES)


def solve(settings: dict[str, Any]) -> None:
    budget, solved = settings.pop("budget"), Solved(settings.pop("threshold"))
    learner = model(**settings)
    learner.learn(budget, callback=solved)
    say({"reached": solved.reached, "steps": learner.num_timesteps})


def curve(settings: dict[str, Any]) -> None:
    budget, returns = settings.pop("budget"), Returns()
    off_policy(**settings).learn(budget, callback=returns)
    say({"episodes": returns.episodes, "versions": versions(*PACKAGES)})


def predict(settings: dict[str, Any]) -> None:
    learner = made(settings)
    seen = np.zeros(learner.observation_space.shape, np.float32)
    say({"versions": versions(*PACKAGES)})
    for line in sys.stdin:
        say(microseconds(lambda: learner.predict(seen, deterministic=True), float(line)))


if __name__ == "__main__":
    {"rate": rate, "solve": solve, "curve": curve, "predict": predict}[sys.argv[1]](json.loads(sys.argv[2]))
