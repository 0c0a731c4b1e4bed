"""Steps per second of `ec=openai_es ec.lifetime=play`, against a bare loop over the same policies and worlds.

The bare loop plays the very episodes that ours has played, with the same stacked forward pass, and does nothing else:
no perturbations, no shaping, no step, no records, no checks; making its worlds and recording its forward pass are not
timed. Its rows whose episodes are over begin others, as those of vector environments do; ours rest. Ours is the whole
run but for its directory. Both wait for the longest episode. They take turns on one thread, and every number is a
median over the rounds.

    python benchmarks/ec/play.py [--rounds 5] [--out DIR]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import alternate, arguments, machine, median, page, save

from evorl import config
from evorl.ec.openai_es import OpenAIES
from evorl.evolve import Population
from evorl.experiment import Experiment
from evorl.nets.distributions import noise_size
from evorl.rl.crowd import Actor, Crowd
from evorl.util.seed import Grouped

POPULATION, EPISODES, GENERATIONS = 200, 1, 3
CASES = {
    "cartpole": ["mdp=cartpole", "rl.net.hidden=[32]"],
    "pong": ["mdp=pong", "rl.net.hidden=[64,64]", "rl.normalize_inputs=false"],
}


def experiment(words: list[str]) -> Experiment:
    with config.opened() as hydra:
        return config.experiment(config.resolved(config.compose(hydra, words)))


def contest(words: list[str]) -> dict[str, Callable[[int], float]]:
    """Functions of a round's number: steps per second of an evolution, and of a bare loop over what it played."""
    evolution = OpenAIES(population=POPULATION, episodes=EPISODES, together=POPULATION)

    def begun(number: int) -> Population:
        population = Population(replace(experiment(words), seed=number, ec=evolution), evolution)
        population.iterate()  # builds the worlds, records the forward pass
        return population

    def ours(number: int) -> float:
        population = begun(number)
        before, began = population.steps, time.perf_counter()
        for _ in range(GENERATIONS):
            population.iterate()
        seconds = time.perf_counter() - began
        population.close()
        return (population.steps - before) / seconds

    def bare(number: int) -> float:
        population = begun(number)
        before, weights = population.steps, []
        for _ in range(GENERATIONS):
            population.iterate()  # a whole generation, whose individuals are the population now
            people = [one.individual for one in population.evolver.population]
            weights.append(np.stack([one.weights for one in people if one.weights is not None]))
        population.close()
        steps, seconds = loop(population.experiment, weights)
        assert steps == population.steps - before, "the bare loop played something else"
        return steps / seconds

    return {"ours": ours, "bare": bare}


def loop(made: Experiment, generations: list[NDArray[np.float32]]) -> tuple[int, float]:
    """Play one episode of every policy of each generation; the steps, and the seconds without the set-up."""
    world, steps, seconds = made.mdp.judge(), 0, 0.0
    keys = Grouped(made.seed, evaluation=True, width=1, groups=("fitness",) * POPULATION)
    for weights in generations:
        arena = world.arena(POPULATION, keys)
        crowd = Crowd(Actor(arena.spec, made.rl.net), weights)
        noise = torch.zeros(POPULATION, noise_size(arena.spec.action))
        now, rows, alive = arena.recv(), np.arange(POPULATION), np.ones(POPULATION, bool)
        crowd.act(tuple(torch.from_numpy(x) for x in now.inputs), None, noise, None, None)
        began = time.perf_counter()
        while alive.any():
            decision = crowd.act(tuple(torch.from_numpy(x) for x in now.inputs), None, noise, None, None)
            arena.send(rows, decision.played.numpy())
            now = arena.recv()
            steps += int(alive.sum())
            alive &= ~(now.terminated | now.truncated)
        seconds += time.perf_counter() - began
        arena.close()
    return steps, seconds


def main() -> None:
    options = arguments(__doc__, rounds=5)
    torch.set_num_threads(1)
    rows, samples = [], {}
    for name, words in CASES.items():
        found = alternate(contest(words), range(options.rounds))
        share = [a / b for a, b in zip(found["ours"], found["bare"], strict=True)]
        rows.append([name, *(f"{median(found[one]):,.0f}" for one in ("ours", "bare")), f"{median(share):.2f}"])
        samples[name] = found
    header = ["world", "ours, steps/s", "bare loop, steps/s", "ours / bare"]
    lines = page(f"Play: {POPULATION} policies in one forward pass", __doc__, header, rows)
    save(options.out, machine(), lines, {"samples": samples})


if __name__ == "__main__":
    main()
