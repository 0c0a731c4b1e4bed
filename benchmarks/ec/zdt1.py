"""NSGA-II on ZDT1 (30 variables, population 100, 250 generations): seconds and hypervolume, ours against the peers'.

Every round each contestant solves the problem once in a live process of its own, with the round's number, from 1, as
its seed, and one thread; contestants take turns, so whatever else the machine does hits all alike, and start-up counts
for none. Measured is the whole loop of proposing, judging and learning; all judge a generation in one vectorised call.
Ours is the bare ask and tell, individuals and all; pymoo's is `algorithm.next()`, evox's `StdWorkflow.step()` as it is,
not compiled. Numbers are medians over the rounds, ratios too, but for the best time and the worst hypervolume of any
round; seconds of CPU depend least on what else the machine does. Hypervolumes have the reference (1.1, 1.1), by
moocore; the front itself has 1.21 - 1/3 = 0.8767.

    python benchmarks/ec/zdt1.py [--rounds 10] [--out DIR]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import OURS, PEERS, Worker, alternate, arguments, machine, median, page, save, say, versions

DIMENSIONS, POPULATION, GENERATIONS = 30, 100, 250
Solved = tuple[float, Any]
"""Seconds, and the last population's values, to be minimised [N, 2]."""
Evaluated = tuple[float, float, float]
"""Seconds, seconds of CPU, hypervolume."""


def ours() -> Callable[[int], Solved]:
    from evorl.ec.core import Evaluation, objectives
    from evorl.ec.nsga2 import NSGA2
    from evorl.ec.space import Space
    from evorl.mdp.problem import Problem

    problem = Problem(id="zdt1", dimensions=DIMENSIONS)
    space = Space.box(*problem.bounds)

    def solve(seed: int) -> Solved:
        began = time.perf_counter()
        evolver = NSGA2(population=POPULATION).evolver(space, seed)
        for _ in range(GENERATIONS):
            proposals = evolver.ask()
            values = problem.evaluate(np.array([individual.genes for individual in proposals]))
            evolver.tell(
                [Evaluation(individual, tuple(f)) for individual, f in zip(proposals, values.tolist(), strict=True)]
            )
        return time.perf_counter() - began, -objectives(evolver.population)

    return solve


def pymoo() -> Callable[[int], Solved]:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.problems import get_problem

    problem = get_problem("zdt1", n_var=DIMENSIONS)

    def solve(seed: int) -> Solved:
        began = time.perf_counter()
        algorithm = NSGA2(pop_size=POPULATION)
        algorithm.setup(problem, termination=("n_gen", GENERATIONS), seed=seed, verbose=False)
        while algorithm.has_next():
            algorithm.next()
        return time.perf_counter() - began, algorithm.pop.get("F")

    return solve


def evox() -> Callable[[int], Solved]:
    import torch
    from evox.algorithms import NSGA2
    from evox.core import Problem
    from evox.workflows import StdWorkflow

    torch.set_num_threads(1)

    class ZDT1(Problem):
        def evaluate(self, x: torch.Tensor) -> torch.Tensor:
            f, g = x[:, 0], 1 + 9 * x[:, 1:].mean(1)
            return torch.stack([f, g * (1 - torch.sqrt(f / g))], 1)

    def solve(seed: int) -> Solved:
        torch.manual_seed(seed)
        began = time.perf_counter()
        algorithm = NSGA2(POPULATION, 2, torch.zeros(DIMENSIONS), torch.ones(DIMENSIONS))
        workflow = StdWorkflow(algorithm, ZDT1())
        workflow.init_step()
        for _ in range(GENERATIONS - 1):
            workflow.step()
        return time.perf_counter() - began, algorithm.fit.numpy()

    return solve


CONTESTANTS = {"evorl": (OURS, ours), "pymoo": (PEERS, pymoo), "evox": (PEERS, evox)}


def serve(name: str) -> None:
    """Be a worker: answer each seed on stdin, after a first run that warms up."""
    solve = CONTESTANTS[name][1]()
    solve(0)
    say({"versions": versions("numpy", "moocore", "pymoo", "evox", "torch")})
    for line in sys.stdin:
        began = time.process_time()
        seconds, values = solve(json.loads(line))
        say([seconds, time.process_time() - began, values.tolist()])


def evaluated(worker: Worker, seed: int) -> Evaluated:
    """A worker's run."""
    from evorl.ops.pareto import hypervolume

    seconds, busy, values = worker.answer(seed)
    return round(seconds, 4), round(busy, 4), round(hypervolume(-np.array(values), (-1.1, -1.1)), 5)


def row(name: str, samples: list[Evaluated], own: list[Evaluated]) -> list[str]:
    """Of the table."""
    seconds, busy, volumes = zip(*samples, strict=True)
    lead = [
        median(peer_sample[i] / own_sample[i] for peer_sample, own_sample in zip(samples, own, strict=True))
        for i in (0, 1)
    ]
    times = [min(seconds), median(seconds), lead[0], median(busy), lead[1]]
    return [name, *(f"{time:.3f}" for time in times), f"{median(volumes):.4f}", f"{min(volumes):.4f}"]


def main() -> None:
    options = arguments(__doc__, rounds=10)
    with ExitStack() as stack:
        program = str(Path(__file__).resolve())
        workers = {
            name: stack.enter_context(Worker(python, program, name)) for name, (python, _) in CONTESTANTS.items()
        }
        contests = {
            name: lambda number, worker=worker: evaluated(worker, number + 1) for name, worker in workers.items()
        }
        answers = alternate(contests, range(options.rounds))
    rows = [row(name, samples, answers["evorl"]) for name, samples in answers.items()]
    header = [
        "NSGA-II of",
        "seconds, best",
        "seconds",
        "times ours",
        "CPU seconds",
        "times ours",
        "hypervolume",
        "worst",
    ]
    facts = {**machine(), **{f"versions of {name}": worker.versions for name, worker in workers.items()}}
    save(options.out, facts, page("NSGA-II on ZDT1", __doc__, header, rows), {"samples": answers})


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in CONTESTANTS:
        serve(sys.argv[1])
    else:
        main()
