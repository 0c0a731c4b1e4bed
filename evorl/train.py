"""The loop around one learner."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from evorl.cluster.local import Local
from evorl.mdp.core import World
from evorl.record.core import Record
from evorl.rl.core import Hyper
from evorl.util.types import Count, Natural, Positive


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When a run ends: at whichever limit it meets first."""

    steps: Count | None = None
    """Environment steps; null takes the world's own budget."""
    seconds: Positive | None = None
    fitness: float | None = None
    """Stop when an evaluation reaches it."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When and how a policy is judged while it trains."""

    every: Natural = 0
    """Environment steps between evaluations; 0 judges only at the end."""
    episodes: Count = 60


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    every: Natural = 1_000_000
    """Environment steps between checkpoints; 0 saves only at the end."""
    keep: Count = 2
    """Newest checkpoints kept, besides the best."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One whole run, typed: what the config says, after the door."""

    mdp: World
    rl: Hyper
    cluster: Local = field(default_factory=Local)
    record: Record = field(default_factory=Record)
    seed: Natural = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    budget: Budget = field(default_factory=Budget)
    eval: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoints = field(default_factory=Checkpoints)


class Interrupted(Exception):
    """A signal asked the run to stop; it saved first."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"interrupted by signal {signal}")
        self.signal = signal


def train(experiment: Experiment, directory: Path, *, resume: bool = False, init: Path | None = None) -> dict[str, object]:
    """Train in a run directory that exists; return what result.json holds. Raises `Interrupted` after a clean save."""
    raise NotImplementedError
