"""One run as typed, frozen dataclasses: the config after it was composed and checked."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Literal

from evorl.cluster.core import Cluster
from evorl.cluster.local import Local
from evorl.ec.core import Evolution, IndependentEvolution
from evorl.mdp.core import World
from evorl.mdp.reward_terms import Rewarded, Terms
from evorl.opponents.core import Opponents, Pooled
from evorl.record.core import Record
from evorl.rl.core import Hyper
from evorl.rl.evaluation import MAX_STEPS
from evorl.training.periods import PARTS, part_of
from evorl.util import plugins
from evorl.util.errors import BadRequest
from evorl.util.types import Count, Natural, Positive


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a run; it ends at the first one that it reaches."""

    steps: Count | None = None
    """Environment steps; null takes the world's own budget."""
    seconds: Positive | None = None
    fitness: float | None = None
    """Stop when an evaluation reaches it; of a population that the world's fitness ranks, when an individual does."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When a policy is evaluated during training, and on how many episodes."""

    every: Natural | None = None
    """Environment steps between evaluations; null is a tenth of the budget, 0 only at the end."""
    episodes: Count = 60
    """Episodes of the deterministic policy in each evaluation, in whole games, and as many of the stochastic one."""
    max_steps: Count = MAX_STEPS
    """Environment steps after which an evaluation episode is truncated, where the world has no limit of its own. Games
    of several sides must end by themselves: one side may wait for another."""
    candidates: Natural = 4
    """Individuals of highest fitness that are replayed before one is named best; 0 names the highest fitness."""
    candidate_episodes: Count | None = None
    """Episodes of these replays, all together; null: as many as an evaluation plays, twice ``episodes``."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """When checkpoints are saved, and how many are kept."""

    every: Natural | None = None
    """Environment steps between checkpoints; null is a twentieth of the budget, 0 only at the end."""
    keep: Count = 2
    """Newest checkpoints kept, besides the best."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run: its world, algorithm, evolution, cluster and settings."""

    mdp: World
    rl: Hyper
    ec: Evolution | None = None
    """How a population evolves; null trains one learner."""
    opponents: Opponents | None = None
    """Who plays the sides that the learner does not; null: whom the world has for it."""
    cluster: Cluster = field(default_factory=Local)
    record: Record = field(default_factory=Record)
    seed: Natural = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    budget: Budget = field(default_factory=Budget)
    eval: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoints = field(default_factory=Checkpoints)
    reward: Terms = field(default_factory=Terms)

    def __post_init__(self) -> None:
        if self.rl.policies != "shared":  # the side in an observation chooses the network
            object.__setattr__(self, "mdp", replace(self.mdp, tell_side=True))
        if self.reward and not (
            self.ec is None or (isinstance(self.ec, IndependentEvolution) and self.ec.lifetime == "train")
        ):
            raise BadRequest("is for learners that train by themselves: ec=none, or ec.lifetime=train", "reward")
        if self.mdp.alone and not self.cluster.in_process:
            raise BadRequest(f"{self.mdp.alone}: take cluster=local", "cluster")
        if self.opponents is None:
            return
        if self.ec is not None:
            raise BadRequest(
                "opponents are those of one learner, with ec=none; leave it out: a population chooses its own",
                "opponents",
            )
        if isinstance(self.opponents, Pooled) and self.rl.asynchronous:
            raise BadRequest("opponents are chosen between two batches; add rl.asynchronous=false", "opponents")

    @property
    def training_world(self) -> World:
        """The world of training episodes, with its rewards. Raises `BadRequest` if it has no opponents."""
        if not self.reward:
            return self._played_world
        return Rewarded(world=self._played_world, terms=self.reward, gamma=self.rl.gamma, budget=self.mdp.budget)

    @property
    def _played_world(self) -> World:
        """The world of training episodes as it is. Raises `BadRequest` if it has no opponents."""
        if self.opponents is None:
            return self.mdp
        try:
            world = self.mdp.all_sides()
        except BadRequest as error:
            raise error.under("mdp" if error.key else "opponents") from None
        if isinstance(self.opponents, Pooled):
            _check_sides(self.opponents, world)
        return world

    @property
    def learning_sides(self) -> int:
        """Sides of a game whose decisions a training run learns from."""
        world = self._played_world
        return world.team_sides if isinstance(self.opponents, Pooled) else world.sides

    def periods(self) -> dict[str, int]:
        """Environment steps between evaluations (``eval``) and checkpoints; parts of the world's budget where null."""
        return {name: part_of(self.mdp.budget, name) if every is None else every for name, every in self._every()}

    def own_periods(self) -> dict[str, int]:
        """The same, parts of the run's own budget, for those that are null if that budget is smaller than the world's.

        A new run writes them into its config, so that a larger budget on resume does not move them. A budget that is
        too small for a part writes none.
        """
        steps = self.budget.steps
        if steps is None or steps >= self.mdp.budget:
            return {}
        return {name: part for name, every in self._every() if every is None and (part := steps // PARTS[name])}

    def _every(self) -> tuple[tuple[str, int | None], ...]:
        return ("eval", self.eval.every), ("checkpoint", self.checkpoint.every)

    @property
    def packages(self) -> tuple[str, ...]:
        """Root modules outside evorl of its classes and of what these derive from, in alphabetical order."""
        kinds = {kind for made in (self.mdp, self.rl, self.ec) for kind in type(made).__mro__}
        roots = {kind.__module__.partition(".")[0] for kind in kinds} | {*self.rl.imports()}
        roots |= {root for _, root in self.mdp.imports()}
        return tuple(sorted(root for root in roots if root not in ("evorl", *sys.stdlib_module_names)))

    @property
    def trust(self) -> tuple[str, ...]:
        """What a command line trusts that goes on with it: packages that are no plugins, and commands of its game."""
        known = (*plugins.WORLDS, *plugins.installed())
        return (*(root for root in self.packages if root not in known), *self.mdp.commands())


def _check_sides(opponents: Pooled, world: World) -> None:
    """Raise `BadRequest` for opponents that the games of all sides of a world do not have."""
    if opponents.rule and not world.takes_rule_action:
        raise BadRequest(f"{world.title} has no rule player that joins games of all sides", "opponents.rule")
    teams = world.sides // world.team_sides
    if wrong := [side for side in opponents.sides or () if side >= teams]:
        raise BadRequest(f"{world.title} has the sides 0 to {teams - 1}, not {wrong[0]}", "opponents.sides")
