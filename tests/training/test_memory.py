"""Memory stays flat however long a run goes on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from harness import WORLDS, experiment_of

from evorl.ec.core import Individual, pack
from evorl.population.evaluation import evaluation_plan
from evorl.training.train import Run

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of this process that lie in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def growth(words: tuple[str, ...], warm: int, steps: int) -> int:
    """Bytes by which the least memory of a run's second half exceeds that of its first, ``warm`` steps aside."""
    run = Run(experiment_of(*words))
    halves: tuple[list[int], list[int]] = ([], [])
    try:
        while run.steps < warm + steps:
            run.iterate()
            if run.steps >= warm:
                halves[run.steps >= warm + steps // 2].append(resident())
    finally:
        run.close()
    return min(halves[1]) - min(halves[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "words", "steps"),
    [
        pytest.param(
            *("pong", ("mdp=pong", "rl.slots=128", "rl.horizon=16", "rl.passes=1"), 1_600_000), marks=pytest.mark.fault
        ),
        ("cartpole", ("mdp=cartpole", "rl.slots=64", "rl.passes=1"), 200_000),
        pytest.param(
            *("duel", (*WORLDS["duel"], "rl.slots=32", "rl.horizon=32", "rl.passes=1"), 120_000),
            marks=pytest.mark.fault,
        ),
    ],
)
def test_memory_is_flat(world: str, words: tuple[str, ...], steps: int) -> None:
    """An allocator may still take a MiB, and a page or so; 35 bytes kept of every step would be more than two."""
    assert growth(words, steps // 4, steps) < 2 << 20


@pytest.mark.fault
def test_memory_is_flat_over_5_million_steps() -> None:
    assert growth(("mdp=pong",), 1_000_000, 5_000_000) < 8 << 20


@pytest.mark.slow
def test_memory_is_flat_over_lifetimes() -> None:
    """Each has a learner of its own, whose captured steps go with it: kept, they would be some 3 MB each."""
    words = ("mdp=cartpole", "ec=pbt", "ec.train_steps=64", "ec.episodes=1", "+ec.genes.rl.lr=[1e-4,1e-3]")
    experiment = experiment_of(*words, "rl.slots=4", "rl.horizon=16", "rl.minibatch=32", "rl.passes=1")
    assert experiment.ec is not None
    found = evaluation_plan(experiment, experiment.ec)
    worker, sizes = found.make(0), []
    for number in range(24):
        genes = found.space.sample(np.random.default_rng(number), 1)[0]
        worker.evaluate(pack([Individual(number, genes, found.space.weights_of(number))]))
        sizes.append(resident())
    assert min(sizes[16:]) - min(sizes[8:16]) < 8 << 20
