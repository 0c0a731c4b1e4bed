"""Uniform sampling with replacement, as a pure function of what it is for."""

from __future__ import annotations

import numpy as np

from evorl.replay.rollouts import Numbers
from evorl.replay.samplers.core import Memory, Sampler
from evorl.util import seed as seeds


class Uniform(Sampler):
    """All alike."""

    name = "uniform"

    def draw(self, memory: Memory, key: int, steps: range, size: int) -> Numbers:
        return uniform(key, steps.start, len(steps), size, memory.low, memory.low + memory.held)


def uniform(key: int, first: int, minibatches: int, size: int, low: int, high: int) -> Numbers:
    """Draw numbers [minibatches, size] evenly from [low, high).

    The minibatch of gradient step u depends only on (key, u, size, low, high), however many are drawn at once; steps
    are numbered from ``first``.
    """
    counter = np.arange(first * size, (first + minibatches) * size, dtype=np.uint64)
    drawn = seeds.uniform(np.array([key], np.uint64), counter)
    return (low + (drawn * (high - low)).astype(np.int64)).reshape(minibatches, size)
