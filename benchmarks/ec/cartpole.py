"""Steps per second of evolution on CartPole with 2 workers: `openai_es` by play against EvoTorch's PGPE and CEM.

All have a population of 200, one episode of CartPole-v1 each, the network 4-32-2 with tanh, the better action taken,
and 2 worker processes with one thread each: ours with cluster=processes, EvoTorch's GymNE with 2 actors, PGPE with
distributed=True, so that its actors sample and take gradients themselves. Each contestant is a live process that goes
on with its own search in whole generations; they take turns, so whatever else the machine does hits all alike.
Each library plays its own CartPole, so the ratio is of whole systems: evorl steps all episodes at once in NumPy, GymNE
steps Gymnasium's environments one after the other: 50,000 to 76,000 steps per second and core without any policy.
Before anything is measured each searches until its mean episode is longer than 450 of at most 500 steps, or a
minute is over: steps are cheaper where episodes are long. Numbers are medians over the rounds.

    python benchmarks/ec/cartpole.py [--rounds 5] [--seconds 10] [--out DIR]
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import OURS, PEERS, Worker, alternate, arguments, machine, median, page, save, say, versions

POPULATION, WORKERS, HIDDEN = 200, 2, 32
LONG, PATIENCE_S = 450, 60.0
Generation = Callable[[], int]
"""Lives through one generation; the environment steps it took."""


def ours() -> Generation:
    from evorl.cli import config
    from evorl.population.loop import Population

    words = [
        "mdp=cartpole", "ec=openai_es", f"ec.population={POPULATION}", "ec.episodes=1", f"rl.net.hidden=[{HIDDEN}]",
        "rl.normalize_inputs=false", "cluster=processes", f"cluster.workers={WORKERS}", "seed=1",
    ]  # fmt: skip
    with config.opened() as hydra:
        made = config.experiment(config.resolved(config.compose(hydra, words)))
    assert made.ec is not None
    population = Population(made, made.ec)

    def generation() -> int:
        before, steps = population.evolver.generation, population.steps
        while population.evolver.generation == before:
            population.iterate()
        return population.steps - steps

    return generation


def evotorch(algorithm: str) -> Generation:
    import ray
    from evotorch.algorithms import CEM, PGPE
    from evotorch.neuroevolution import GymNE

    logging.disable(logging.WARNING)  # it logs where answers go
    system = {"worker_niceness": 0}  # else whatever else the machine does goes before them
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", _system_config=system)
    network = f"Linear(obs_length, {HIDDEN}) >> Tanh() >> Linear({HIDDEN}, act_length)"
    problem = GymNE("CartPole-v1", network, num_actors=WORKERS)
    searcher = {
        "PGPE": lambda: PGPE(
            problem, popsize=POPULATION, center_learning_rate=0.3, stdev_learning_rate=0.1, stdev_init=0.5,
            optimizer="clipup", optimizer_config={"max_speed": 0.6}, ranking_method="centered", distributed=True,
        ),
        "CEM": lambda: CEM(problem, popsize=POPULATION, parenthood_ratio=0.25, stdev_init=0.5),
    }[algorithm]()  # fmt: skip

    def generation() -> int:
        before = problem.interaction_count
        searcher.step()
        return int(problem.interaction_count - before)

    return generation


CONTESTANTS: dict[str, tuple[Path, Callable[[], Generation]]] = {
    "evorl openai_es": (OURS, ours),
    "EvoTorch PGPE": (PEERS, partial(evotorch, "PGPE")),
    "EvoTorch CEM": (PEERS, partial(evotorch, "CEM")),
}


def serve(make: Callable[[], Generation]) -> None:
    """Be a worker: search until episodes are long; then a number of seconds gives [steps, seconds, episodes]."""
    generation, began = make(), time.perf_counter()
    while generation() < LONG * POPULATION and time.perf_counter() - began < PATIENCE_S:
        pass
    say({"versions": versions("torch", "numpy", "gymnasium", "ray", "evotorch")})
    for line in sys.stdin:
        steps, episodes, began = 0, 0, time.perf_counter()
        while not steps or time.perf_counter() - began < float(line):
            steps += generation()
            episodes += POPULATION
        say([steps, time.perf_counter() - began, episodes])


def row(name: str, samples: list[Any], own: list[Any]) -> list[str]:
    """Of the table; each sample is [steps, seconds, episodes]."""
    rates = [steps / seconds for steps, seconds, _ in samples]
    lead = median(steps / seconds / rate for (steps, seconds, _), rate in zip(own, rates, strict=True))
    lengths = median(steps / episodes for steps, _, episodes in samples)
    return [name, f"{median(rates):,.0f}", f"{min(rates):,.0f}", f"{max(rates):,.0f}", f"{lead:.2f}", f"{lengths:.0f}"]


def main() -> None:
    options = arguments(__doc__, rounds=5, seconds=10.0)
    program, facts = str(Path(__file__).resolve()), machine()
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(python, program, name)) for name, (python, _) in CONTESTANTS.items()
        }
        contests = {
            name: lambda number, worker=worker: worker.answer(options.seconds) for name, worker in workers.items()
        }
        answers = alternate(contests, range(options.rounds))
    header = ["2 workers", "steps/s", "least", "most", "evorl's over it", "steps of an episode"]
    rows = [row(name, samples, answers["evorl openai_es"]) for name, samples in answers.items()]
    facts |= {f"versions of {name}": worker.versions for name, worker in workers.items()}
    shown = page(f"CartPole: a population of {POPULATION} with {WORKERS} workers", __doc__, header, rows)
    save(options.out, facts, shown, {"samples": answers})


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in CONTESTANTS:
        serve(CONTESTANTS[sys.argv[1]][1])
    else:
        main()
