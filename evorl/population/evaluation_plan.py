"""What evaluators offer to the loop of a population.

An evaluator is a member of a group that turns individuals into objectives. An evaluation is a pure function of the
individual (id, genes, weights, memory) and the experiment. So it can run in any process, and again after its process
was killed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Individual
from evorl.ec.space import Space
from evorl.mdp.core import StateDict
from evorl.nets.statistics import Moments
from evorl.population.results import TaskResult
from evorl.rl.core import Learner, Metrics


class Evaluator(Protocol):
    """A member of the group that evaluates individuals."""

    def evaluate(self, packed: StateDict) -> TaskResult:
        """Evaluate individuals packed by `evorl.ec.core.pack`."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class EvaluationPlan:
    """How an experiment's individuals are made and evaluated."""

    space: Space
    make: Callable[[int], Evaluator]
    """Makes the members of the group, from their index."""
    together: int
    """Individuals per task."""
    learner: Callable[[Individual], Learner] | None
    """Turns an individual into a learner that can be evaluated and saved; None for a problem."""
    objective_names: tuple[str, ...]
    """Names of the objectives: ``fitness``, ``fitness+0.5*lazy``."""
    begin: Callable[[StateDict], tuple[NDArray[np.float32], StateDict | None]] | None = None
    """Extracts weights and memory of an individual from a learner's state; None for a problem. Raises ValueError or
    KeyError if they do not fit."""
    moments: Callable[[], Moments | None] = lambda: None
    """Makes empty input statistics for the population to share; returns None if it shares none."""
    check_memory: Callable[[int], None] = lambda copies: None
    """Raises `BadRequest` where the replays of so many evaluators at once do not fit into this machine's memory."""
    evaluate: Callable[[Individual], Metrics] | None = None
    """Evaluates the individual named best where episodes of the world's evaluation do not; then nothing is replayed to
    name it. Raises `NotFinite`."""
    results: tuple[str, ...] = ()
    """Names of results beside those of an episode of the world."""
