"""How many bytes a run of openai_es sends for each individual.

Every call and result between a run of `ec=openai_es` and the workers that evaluate is counted as the bytes of its
content (`evorl.cluster.transport.connection.dumps`). All workers begin with the same parameters and receive the
fitnesses of every generation, so the parameters need not be sent. Each call carries the fitnesses of the last
generations, at most eight, so its size grows over the first eight generations. The result of an individual holds its
fitness and the results of each of its episodes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import arguments, machine, page, save

from evorl.cli import config
from evorl.cluster.local import Local
from evorl.cluster.transport.connection import dumps
from evorl.ec.openai_es import OpenAIES
from evorl.population.dispatch import Dispatcher, SeedDispatcher, SeedFollower, WeightDispatcher
from evorl.population.evaluation import evaluation_plan
from evorl.population.results import to_evaluation
from evorl.training.experiment import Experiment

POPULATION, GENERATIONS, MEMBERS = 40, 5, 4
CASES = [(hidden, 1) for hidden in ([8], [64, 64], [256, 256], [512, 512, 512])] + [([512, 512, 512], 60)]
"""Hidden layers, and episodes of an individual."""


class Counted:
    """A group whose calls and answers are weighed."""

    def __init__(self, group: Any) -> None:
        self.group, self.bytes = group, 0

    def any(self, method: str, *args: object) -> Any:
        future = self.group.any(method, *args)
        self.bytes += len(dumps(list(args))) + len(dumps(future.result()))
        return future

    def __getattr__(self, name: str) -> Any:
        """What else a group does; no generation that goes well asks for it."""
        return getattr(self.group, name)


def experiment(hidden: list[int]) -> Experiment:
    with config.opened() as hydra:
        words = ["mdp=cartpole", f"rl.net.hidden={hidden}".replace(" ", "")]
        return config.experiment(config.resolved(config.compose(hydra, words)))


def generations(hidden: list[int], episodes: int, by_seed: bool) -> tuple[int, list[int]]:
    """The number of parameters, and the bytes of each generation."""
    evolution = OpenAIES(population=POPULATION, episodes=episodes, together=POPULATION // MEMBERS)
    plan = evaluation_plan(replace(experiment(hidden), ec=evolution), evolution)
    evolver = evolution.evolver(plan.space, 0)
    make = partial(SeedFollower, plan.make, partial(evolution.centre, plan.space, 0)) if by_seed else plan.make
    group = Counted(Local().spawn(make, MEMBERS))
    dispatcher: Dispatcher = (
        SeedDispatcher(group, evolver, POPULATION) if by_seed else WeightDispatcher(group, None, POPULATION)
    )
    sent = []
    for _ in range(GENERATIONS):
        before = group.bytes
        tasks = [dispatcher.send(evolver.ask(plan.together)) for _ in range(MEMBERS)]
        for task in tasks:
            answers = dispatcher.answers(task)
            evaluations = [
                to_evaluation(individual, answer)[0]
                for individual, answer in zip(task.individuals, answers.each, strict=True)
            ]
            dispatcher.tell(evaluations)
            evolver.tell(evaluations)
        sent.append(group.bytes - before)
    return plan.space.size, sent


def main() -> None:
    options = arguments(__doc__)
    rows, samples = [], []
    for hidden, episodes in CASES:
        size, seeds = generations(hidden, episodes, True)
        whole = generations(hidden, episodes, False)[1]
        samples.append({"parameters": size, "episodes": episodes, "by seed": seeds, "whole": whole})
        numbers = (size, episodes, seeds[0], seeds[-1], whole[-1], round(whole[-1] / seeds[-1]))
        rows.append([f"{number:,}" for number in numbers])
    header = ["parameters", "episodes", "by seed, first generation", "by seed, fifth", "whole, fifth", "times"]
    facts = machine()
    title = f"Bytes of a generation of {POPULATION} individuals in {MEMBERS} tasks"
    save(options.out, facts, page(title, __doc__, header, rows), {"samples": samples})


if __name__ == "__main__":
    main()
