"""How busy 4 workers are when evaluations take unlike times: asynchronous evolution against the generation's barrier.

An evaluation takes a time drawn from the exponential distribution, whose coefficient of variation is 1, with a mean of
half a second; it sleeps meanwhile, so that what else the machine does counts little. The runs are whole ones but for
their records: population based training whose members go to 4 worker processes (cluster=processes) and come back. The
share is that of the workers' time within evaluations, from the first one's beginning to the end of the given number of
them. Asynchronous and synchronous runs take turns; numbers are medians over the rounds, whose numbers, from 1, are
their seeds.

    python benchmarks/ec/busy.py [--rounds 3] [--evaluations 96] [--out DIR]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import alternate, arguments, machine, median, page, save

from evorl.cluster.processes import Processes
from evorl.ec.pbt import PBT
from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Battle, Discrete, Input, Spec, State, Step
from evorl.nets.policy import Net
from evorl.population.loop import Population
from evorl.rl.ppo import PPO
from evorl.training.experiment import Experiment
from evorl.util.seed import generator

WORKERS, MEAN_S = 4, 0.5
POPULATIONS = (4, 8, 32)


@dataclass(frozen=True, kw_only=True)
class Wait(BattleWorld):
    """One decision, answered after a while; the results tell when that was."""

    @property
    def spec(self) -> Spec:
        return Spec((Input("nothing", (1,)),), Discrete(2))

    def reset(self, *players: int, seed: int) -> Battle:
        return Waiting(seed)


class Waiting:
    """Battle and controller in one."""

    def __init__(self, seed: int) -> None:
        self.seconds = float(generator("busy", seed).exponential(MEAN_S))
        self.times: dict[str, float] = {}

    state = State((np.zeros(1, np.float32),))

    @property
    def controllers(self) -> Sequence[Waiting]:
        return [self]

    async def __call__(self, action: Array) -> Step:
        await asyncio.sleep(self.seconds)
        self.times = {"ended": time.monotonic(), "fitness": self.seconds % 0.01}
        return Step(np.zeros(1, np.float32), terminated=True)

    def result(self) -> Mapping[str, float]:
        return self.times

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def experiment(population: int, asynchronous: bool, seed: int) -> Experiment:
    evolution = PBT(
        population=population, lifetime="play", episodes=1, seeds="fresh", together=1, asynchronous=asynchronous
    )
    rl = PPO(net=Net(hidden=()))
    return Experiment(mdp=Wait(), rl=rl, ec=evolution, cluster=Processes(workers=WORKERS), seed=seed)


def share(population: int, asynchronous: bool, evaluations: int, number: int) -> dict[str, float]:
    """How busy the workers of a run were, and the coefficient of variation of its evaluations' durations."""
    whole = experiment(population, asynchronous, number + 1)
    assert whole.ec is not None
    run = Population(whole, whole.ec)
    rows: list[dict[str, Any]] = []
    try:
        while len(rows) < evaluations + max(POPULATIONS):  # so that all are known that are under way at the end
            rows += run.iterate().evaluated
    finally:
        run.close()
    ended = np.array([row["results"]["ended"] for row in rows])
    return busy(np.stack([ended - [row["seconds"] for row in rows], ended], 1), evaluations)


def busy(times: Array, evaluations: int) -> dict[str, float]:
    """Of the times [N, 2] at which evaluations began and ended, up to the end of so many."""
    began, ended = times.T
    first, last = began.min(), np.sort(ended)[evaluations - 1]
    inside = np.clip(ended, first, last) - np.clip(began, first, last)
    took = ended - began
    return {
        "busy": float(inside.sum() / (WORKERS * (last - first))),
        "seconds": float(last - first),
        "variation": float(took.std() / took.mean()),
    }


def main() -> None:
    options = arguments(__doc__, rounds=3, evaluations=96)
    contests = {
        (population, asynchronous): partial(share, population, asynchronous, options.evaluations)
        for population in POPULATIONS
        for asynchronous in (True, False)
    }
    facts, answers = machine(), alternate(contests, range(options.rounds))
    middle = {
        key: {name: median(sample[name] for sample in samples) for name in samples[0]}
        for key, samples in answers.items()
    }
    rows = [
        [
            f"population {population}",
            *(f"{middle[population, asynchronous]['busy']:.1%}" for asynchronous in (True, False)),
            *(f"{middle[population, asynchronous]['seconds']:.1f}" for asynchronous in (True, False)),
            f"{middle[population, True]['variation']:.2f}",
        ]
        for population in POPULATIONS
    ]
    header = [
        "4 workers",
        "busy, asynchronous",
        "busy, synchronous",
        "seconds",
        "synchronous",
        "variation of durations",
    ]
    samples = [
        {"population": population, "asynchronous": asynchronous, "rounds": samples}
        for (population, asynchronous), samples in answers.items()
    ]
    shown = page("Workers, when evaluations take unlike times", __doc__, header, rows)
    save(options.out, facts, shown, {"samples": samples})


if __name__ == "__main__":
    main()
