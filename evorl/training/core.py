"""The interface between a run's session and its work: one learner, or a population."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from evorl.rl.core import Metrics
from evorl.training.experiment import Experiment
from evorl.util.types import StateDict


class Progress(NamedTuple):
    """The outcome of one iteration."""

    metrics: Metrics
    evaluated: Sequence[dict[str, Any]] = ()
    """Rows of population.jsonl."""
    jobs: Sequence[dict[str, Any]] = ()
    """Rows of jobs.jsonl."""
    opponents: Sequence[dict[str, Any]] = ()
    """Rows of opponents.jsonl: opponents that play no more."""
    payoffs: Sequence[dict[str, Any]] = ()
    """Rows of payoffs.jsonl: tables of a new generation of policies that play each other."""


class Work(Protocol):
    """What a session runs: one learner or a population."""

    experiment: Experiment
    steps: int
    """Environment steps so far."""
    best: tuple[float, int] | None
    """Fitness and step of the best evaluation."""
    whole: bool
    """Whether the state may be saved after `iterate` has raised; it may always be between two iterations."""

    @property
    def due(self) -> bool:
        """Whether work is left after the last step of the budget; some parts cost no steps."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do, whatever the budget: the journal of a replay has ended."""
        ...

    def iterate(self) -> Progress:
        """Run one iteration. Raises `NotFinite`, which names the step, `WorldError`, and `Stopped` before anything has
        changed."""
        ...

    def evaluate(self) -> Metrics:
        """Evaluate the present policy on the same seeds every time; return the ``eval/...`` metrics.

        May raise `Stopped`, and can then be called again."""
        ...

    def top_individuals(self) -> list[dict[str, Any]]:
        """Return the best individuals as table rows; empty for one learner."""
        ...

    def opponents(self) -> list[dict[str, Any]]:
        """Return the present rows of opponents.jsonl; empty without a pool of opponents."""
        ...

    def fitness(self, evaluated: Metrics | None) -> float | None:
        """Return the fitness reached so far, given the newest evaluation; None before there is any."""
        ...

    def result(self) -> dict[str, Any]:
        """Return the entries of result.json beside steps, times and the evaluation."""
        ...

    def state_dict(self) -> StateDict: ...

    def appended_rows(self) -> StateDict:
        """Return the `AppendedRows` of the state under its keys, without the rest; empty if the state has none."""
        ...

    def load_state_dict(self, state: StateDict) -> None: ...

    def close(self) -> None: ...
