"""Speed of the coroutine arena: a no-op two-sided world of 256 battles, played by a 64-64 network on one core.

Decisions per second with everybody quick, and with one battle that takes 100 ms for every step; the others may lose
less than 5 %. Medians over the rounds; both are measured in each, in turn.

    python benchmarks/speed/arena.py [--seconds 1.0] [--rounds 15] [--out DIR]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

import numpy as np
import torch
from common import arguments, machine, page, save
from torch import nn

from evorl.mdp.battle_arena import BattleArena
from evorl.mdp.core import Array, Battle, Controller, Discrete, Input, Spec, State, Step
from evorl.mdp.delay import Delayed
from evorl.util.seed import Episodes

BATTLES, SIDES, SIZE, LENGTH = 256, 2, 8, 1000
SPEC = Spec(inputs=(Input("nothing", (SIZE,)),), action=Discrete(4), players=SIDES)
STATE = State((np.zeros(SIZE, np.float32),))
REWARD = np.zeros(1, np.float32)


class Idle:
    """One side of a game in which nothing happens, LENGTH times."""

    def __init__(self) -> None:
        self.left = LENGTH

    @property
    def state(self) -> State:
        return STATE

    async def __call__(self, action: Array) -> Step:
        self.left -= 1
        return Step(REWARD, truncated=self.left == 0)

    def result(self) -> Mapping[str, float]:
        return {}


class NoBattle:
    def __init__(self) -> None:
        self.controllers: Sequence[Controller] = [Idle() for _ in range(SIDES)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing runs in the background."""


class NoWorld:
    """A factory of such games."""

    spec = SPEC

    def reset(self, *players: int, seed: int) -> Battle:
        return NoBattle()

    def close(self) -> None:
        """Nothing is held open."""


class SomeSlow(NoWorld):
    """The episodes with the given keys take 100 ms for each decision."""

    def __init__(self, keys: set[int]) -> None:
        self.keys = keys

    def reset(self, *players: int, seed: int) -> Battle:
        quick = NoWorld()
        return (Delayed(quick, (100.0, 100.0)) if seed in self.keys else quick).reset(*players, seed=seed)


def policy() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(SIZE, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, SPEC.action.n))


def measure(slow: int, seconds: float) -> float:
    """Decisions per second, of the quick battles alone where some are slow."""
    episodes = Episodes(0)
    world = SomeSlow({int(episodes(game, 0)) for game in range(slow)})
    arena = BattleArena(world, BATTLES * SIDES, episodes, lambda seed: tuple(range(SIDES)))
    net = policy()
    quick, start = 0, time.perf_counter()
    try:
        with torch.inference_mode():
            while (time_s := time.perf_counter()) - start < seconds:
                rows = arena.recv()
                actions = net(torch.from_numpy(rows.inputs[0])).argmax(1, keepdim=True).numpy()
                arena.send(rows.slots, actions[rows.slots])
                quick += int((rows.slots >= slow * SIDES).sum())
    finally:
        arena.close()
    return quick / (time_s - start)


@dataclass(frozen=True)
class Result:
    decisions_per_second: float
    """Median over the rounds, all 256 battles quick."""
    others_kept: float
    """Median over the rounds of (quick battles' decisions/s with a slow one) / (their share without it)."""
    rounds: list[tuple[float, float]]


def run(seconds: float, rounds: int) -> Result:
    """The two measures in turn, so that both see the same machine."""
    torch.set_num_threads(1)
    measure(0, min(1.0, seconds))  # warm up
    pairs = [(measure(0, seconds), measure(1, seconds)) for _ in range(rounds)]
    share = (BATTLES - 1) / BATTLES
    kept = statistics.median(slow / (share * quick) for quick, slow in pairs)
    return Result(statistics.median(quick for quick, _ in pairs), kept, pairs)


def main() -> None:
    args = arguments(__doc__, seconds=1.0, rounds=15)
    facts, result = machine(), run(args.seconds, args.rounds)
    rows = [
        ["decisions per second, all quick", f"{result.decisions_per_second:,.0f}"],
        ["kept by the others while one battle takes 100 ms a step", f"{100 * result.others_kept:.1f} %"],
    ]
    save(args.out, facts, page("The coroutine arena", __doc__, ["measure", "value"], rows), asdict(result))


if __name__ == "__main__":
    main()
