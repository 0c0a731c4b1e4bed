"""Steps per second of `ec=openai_es ec.lifetime=play`, against a bare loop over the same policies and worlds.

The bare loop plays the very episodes that ours plays in one task, 200 policies in one stacked forward pass, and does
nothing else: no perturbations, no shaping, no step, no records, no checks; making its worlds and recording its forward
pass are not timed. Ours is the whole run but for its directory: with ec.together=200 in one task as the bare loop, and
in the four tasks of the default, which workers can share. Every policy plays one episode, or the 60 of the default:
then a task of 50 policies plays five of each at once. Rows whose episodes are over rest in both where the world lets
them (CartPole; Pong's begin others), and both wait for the longest. CartPole's are the second to fourth generation,
whose episodes are short, and later ones, whose episodes are long. Inputs are as they are (rl.normalize_inputs=false).
They take turns on one thread; every number is a median over the rounds, of the ratio also the quartiles. A round's
number, from 0, is its seed.

    python benchmarks/ec/play.py [--rounds 5] [--out DIR]
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import alternate, arguments, machine, median, page, save

from evorl.cli import config
from evorl.ec.openai_es import OpenAIES
from evorl.mdp.core import StoppableSlots
from evorl.nets.distributions import noise_size
from evorl.population.loop import Population
from evorl.rl.stacked_policies import Actor, StackedPolicies
from evorl.training.experiment import Experiment
from evorl.util.seed import Grouped

POPULATION, GENERATIONS = 200, 3
CARTPOLE = ["mdp=cartpole", "rl.net.hidden=[32]"]
WORLDS = {
    "cartpole, at first": (1, 1, CARTPOLE),
    "cartpole, at first, 60 episodes": (1, 60, CARTPOLE),
    "cartpole, learned": (40, 1, CARTPOLE),
    "pong": (1, 1, ["mdp=pong", "rl.net.hidden=[64,64]", "rl.normalize_inputs=false"]),
}
"""Generations before those that are measured, the first of which builds the worlds and records the forward pass, and
episodes of each policy."""
TASKS = {"one task": POPULATION, "four tasks": POPULATION // 4}
"""Policies of each."""


def experiment(words: list[str]) -> Experiment:
    with config.opened() as hydra:
        return config.experiment(config.resolved(config.compose(hydra, words)))


def contest(before: int, episodes: int, words: list[str]) -> dict[str, Callable[[int], float]]:
    """Functions of a round's number: steps per second of an evolution, and of a bare loop over what it played."""

    def begun(number: int, together: int) -> Population:
        evolution = OpenAIES(population=POPULATION, episodes=episodes, together=together)
        population = Population(replace(experiment(words), seed=number, ec=evolution), evolution)
        for _ in range(before):
            generation(population)
        return population

    def ours(together: int, number: int) -> float:
        population = begun(number, together)
        gc.collect()  # what the set-up has left behind
        steps, began = population.steps, time.perf_counter()
        for _ in range(GENERATIONS):
            generation(population)
        seconds = time.perf_counter() - began
        population.close()
        return (population.steps - steps) / seconds

    def bare(number: int) -> float:
        population = begun(number, POPULATION)
        already, weights = population.steps, []
        for _ in range(GENERATIONS):
            generation(population)  # whose individuals are the population now
            people = [evaluation.individual for evaluation in population.evolver.population]
            weights.append(np.stack([individual.weights for individual in people if individual.weights is not None]))
        population.close()
        steps, seconds = loop(population.experiment, episodes, weights)
        assert steps == population.steps - already, "the bare loop played something else"
        return steps / seconds

    return {**{name: partial(ours, together) for name, together in TASKS.items()}, "bare": bare}


def generation(population: Population) -> None:
    before = population.evaluations
    while population.evaluations < before + POPULATION:
        population.iterate()


def loop(made: Experiment, episodes: int, generations: list[NDArray[np.float32]]) -> tuple[int, float]:
    """Play episodes of every policy of each generation; the steps, and the seconds without the set-up."""
    world, steps, seconds = made.mdp.evaluation_world(), 0, 0.0
    keys = Grouped(made.seed, evaluation=True, width=1, groups=("fitness",) * POPULATION)
    for weights in generations:
        arena = world.arena(POPULATION, keys)
        crowd = StackedPolicies(Actor(arena.spec, made.rl.net), weights)
        noise = torch.zeros(POPULATION, noise_size(arena.spec.action))
        decisions, rows, alive = arena.recv(), np.arange(POPULATION), np.ones(POPULATION, bool)
        left = np.full(POPULATION, episodes)
        crowd.act(tuple(torch.from_numpy(x) for x in decisions.inputs), None, noise, None, None)
        gc.collect()
        began = time.perf_counter()
        while alive.any():
            decision = crowd.act(tuple(torch.from_numpy(x) for x in decisions.inputs), None, noise, None, None)
            arena.send(rows, decision.played.numpy())
            decisions = arena.recv()
            steps += int(alive.sum())
            ended = np.flatnonzero(alive & (decisions.terminated | decisions.truncated))
            if ended.size:
                left[ended] -= 1
                over = ended[left[ended] == 0]
                alive[over] = False
                for slot in over.tolist() if isinstance(arena, StoppableSlots) else ():
                    arena.stop_slot(slot)
        seconds += time.perf_counter() - began
        arena.close()
    return steps, seconds


def main() -> None:
    options = arguments(__doc__, rounds=5)
    torch.set_num_threads(1)
    rows, samples = [], {}
    for name, about in WORLDS.items():
        speeds = alternate(contest(*about), range(options.rounds))
        for tasks in TASKS:
            share = [a / b for a, b in zip(speeds[tasks], speeds["bare"], strict=True)]
            low, middle, high = np.quantile(share, (0.25, 0.5, 0.75))
            rates = (f"{median(speeds[arm]):,.0f}" for arm in (tasks, "bare"))
            rows.append([f"{name}, {tasks}", *rates, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"])
        samples[name] = speeds
    header = ["world", "ours, steps/s", "bare loop, steps/s", "ours / bare", "quartiles"]
    lines = page(f"Play: {POPULATION} policies in one forward pass", __doc__, header, rows)
    save(options.out, machine(), lines, {"samples": samples})


if __name__ == "__main__":
    main()
