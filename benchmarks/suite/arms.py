"""The arms of the suite: an algorithm on a world for so many steps, beside Stable-Baselines3's at its zoo's settings.

Ours runs at the settings that ``evorl.run mdp=WORLD rl=ALGORITHM`` has, or those that an arm names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

from benchmarks.speed.common import PEERS, answer
from evorl.reproduction.parts import Inputs, Measurement, Part, Sweep
from evorl.util.errors import BadRequest

SEEDS = (0, 1, 2, 3, 4)
EVALUATIONS = 10
EPISODES = 20
RANDOM_EPISODES = 100
SB3 = "Stable-Baselines3"


class World(NamedTuple):
    title: str
    gymnasium: str | None
    """Its id there."""
    worst: float
    """About the return of random actions."""
    target: float
    """Gymnasium's threshold of a solved world; of those that have none, the usual one; of a game the best score."""
    digits: int = 0
    """Of a printed return."""


WORLDS = {
    "cartpole": World("CartPole", "CartPole-v1", 20, 475),
    "acrobot": World("Acrobot", "Acrobot-v1", -500, -100),
    "pendulum": World("Pendulum", "Pendulum-v1", -1200, -200),
    "lunarlander": World("LunarLander", "LunarLander-v3", -200, 200),
    "lunarlandercontinuous": World("LunarLanderContinuous", "LunarLanderContinuous-v3", -200, 200),
    "halfcheetah": World("HalfCheetah", "HalfCheetah-v5", -300, 4800),
    "hopper": World("Hopper", "Hopper-v5", 0, 3800),
    "swimmer": World("Swimmer", "Swimmer-v5", 0, 360),
    "walker2d": World("Walker2d", "Walker2d-v5", 0, 5000),
    "ant": World("Ant", "Ant-v5", -40, 6000),
    "humanoid": World("Humanoid", "Humanoid-v5", 110, 6000),
    "pong": World("vector Pong", None, -20, 20, digits=1),
    "duel": World("Duel", None, -2, 2, digits=2),
    "atari": World("Atari Boxing", None, 0, 100, digits=1),
    "atari_noframeskip": World("Atari Boxing (NoFrameskip)", None, 0, 100, digits=1),
}


class Arm(NamedTuple):
    """An algorithm on a world."""

    algorithm: str
    """Of conf/rl or conf/ec."""
    world: str
    steps: int
    words: tuple[str, ...]
    """For evorl.run, beside world and budget."""
    peer: str | None
    """The zoo's algorithm beside it."""
    seeds: tuple[int, ...] = SEEDS
    episodes: int = EPISODES
    """Of an evaluation."""

    @property
    def name(self) -> str:
        return f"{self.algorithm}_{self.world}"

    @property
    def title(self) -> str:
        return f"{self.algorithm}, {WORLDS[self.world].title}"

    @property
    def other(self) -> str:
        """What the program beside ours is called."""
        return SB3 if self.peer in (None, self.algorithm) else f"{SB3}'s {self.peer}"

    @property
    def every(self) -> int:
        """Steps between evaluations."""
        return self.steps // EVALUATIONS

    def parts(self) -> Iterator[Part]:
        seeds = ",".join(map(str, self.seeds))
        words = shared(self.steps, self.episodes)
        yield Sweep(self.name, (f"seed={seeds}", f"mdp={self.world}", *self.words, *words))
        if self.peer is not None:
            yield from (Measurement(self.kept(seed), partial(play, self, seed)) for seed in self.seeds)

    def kept(self, seed: int) -> str:
        """The name of the peer's answer."""
        return f"zoo/{self.peer}-{self.world}-{self.steps}-{seed}"


def shared(steps: int, episodes: int = EPISODES) -> tuple[str, ...]:
    """The words that all arms of so many steps have, with so many episodes in an evaluation."""
    return (
        f"budget.steps={steps}", f"eval.every={steps // EVALUATIONS}", f"eval.episodes={episodes}", "device=cpu",
        "record.tensorboard=false",
    )  # fmt: skip


def learner(algorithm: str, world: str, steps: int, *words: str) -> Arm:
    """A learner beside the zoo's of the same name."""
    peer = algorithm if WORLDS[world].gymnasium else None
    return Arm(algorithm, world, steps, (f"rl={algorithm}", *words), peer)


def alone(algorithm: str, world: str, steps: int, *words: str) -> Arm:
    """A learner with no other program beside it."""
    return Arm(algorithm, world, steps, (f"rl={algorithm}", *words), None)


def play(arm: Arm, seed: int, inputs: Inputs) -> dict[str, Any]:
    """What zoo.py says, and how long it took. Raises `BadRequest` for words that would change ours alone."""
    for word in inputs.words:
        if word.startswith(("budget.", "eval.", "mdp.")):
            raise BadRequest("would change evorl's runs alone; the arms of benchmarks/suite say it for both", word)
    settings = {
        "algorithm": arm.peer, "world": WORLDS[arm.world].gymnasium, "steps": arm.steps, "seed": seed,
        "every": arm.every, "episodes": arm.episodes,
    }  # fmt: skip
    began = time.monotonic()
    outcome = answer(PEERS, str(Path(__file__).with_name("zoo.py")), json.dumps(settings))
    return {**outcome, "seconds": time.monotonic() - began}


def random_returns(world: str, inputs: Inputs) -> list[float]:
    """The returns of episodes of random actions."""
    env = gymnasium.make(WORLDS[world].gymnasium or "")
    env.action_space.seed(0)
    returns = []
    for episode in range(RANDOM_EPISODES):
        env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return returns


def sizes(arms: Sequence[Arm]) -> str:
    steps = " to ".join(f"{n:,}" for n in sorted({min(arm.steps for arm in arms), max(arm.steps for arm in arms)}))
    seeds = max(len(arm.seeds) for arm in arms)
    return f"{len(arms)} arm{'s' * (len(arms) > 1)} of {steps} steps; {seeds} seed{'s' * (seeds > 1)}"


def parts(arms: Sequence[Arm]) -> list[Part]:
    """All arms, and the random actions on the worlds that have a peer."""
    worlds = dict.fromkeys(arm.world for arm in arms if arm.peer)
    return [
        *(part for arm in arms for part in arm.parts()),
        *(Measurement(f"random/{world}", partial(random_returns, world)) for world in worlds),
    ]
