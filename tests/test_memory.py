"""Memory stays flat however long a run goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import WORLDS, experiment_of

from evorl.train import Run

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


@pytest.mark.parametrize(
    ("world", "words", "steps"),
    [
        ("pong", ("mdp=pong", "rl.slots=128", "rl.horizon=16", "rl.passes=1"), 1_600_000),
        ("cartpole", ("mdp=cartpole", "rl.slots=64", "rl.passes=1"), 200_000),
        ("duel", (*WORLDS["duel"], "rl.slots=32", "rl.horizon=32", "rl.passes=1"), 120_000),
    ],
)
def test_memory_is_flat(world: str, words: tuple[str, ...], steps: int) -> None:
    """An allocator may still take a MiB, and a page or so; 35 bytes kept of every step would be more than two."""
    assert growth(words, steps // 4, steps) < 2 << 20


@pytest.mark.fault
def test_memory_is_flat_over_5_million_steps() -> None:
    assert growth(("mdp=pong",), 1_000_000, 5_000_000) < 8 << 20
