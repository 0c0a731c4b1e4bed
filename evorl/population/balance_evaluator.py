"""Evaluates individuals as games (``ec.lifetime=balance``): genes are numbers of the game, and learners play it.

A learner trains on both sides of the individual's game, then it plays games against itself. Of these the individual
has its results, beside those that the world reports (means over both sides):

* ``evenness``: 1 - 2 |w - 1/2|, where w is the share of games that the first side wins (`evorl.ops.balance.evenness`);
* ``first_wins``: of each game, 1 if the first side wins, 1/2 for a draw, else 0;
* ``draws``: of each game, whether it is a draw;
* ``variety``: the entropy of the sides' actions, from 0 to 1: a mean over sides and over the components of an action;
* ``change``: how far the genes of ``mdp`` are from the values of the config, the designer's: the root mean square, in
  units of their ranges, in which these values need not lie. A choice differs by 0 or 1.

Both sides act by one network, which learns from both. So if the sides differ, observations have to say which side they
are of. A child goes on from its parent's network in its own game. Actions are drawn, as in training.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import IndependentEvolution, Individual
from evorl.ec.space import Gene
from evorl.mdp.core import Action, Box, World, heads
from evorl.opponents.core import Opponents, SelfPlay
from evorl.ops import balance
from evorl.population.episodes import SLOTS, fitness_episodes, play_keyed_episodes
from evorl.population.evaluation_plan import EvaluationPlan
from evorl.population.genes import value_of, with_values
from evorl.population.objectives import mean, numbers_of_episodes, objective_value
from evorl.population.results import IndividualResult
from evorl.population.train_evaluator import TrainEvaluator, train_plan
from evorl.rl.core import Acting, Metrics
from evorl.rl.points import points
from evorl.training.experiment import Experiment
from evorl.training.train import Run, spec
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest

Array = NDArray[Any]
SIDES = 2
RESULTS = ("evenness", "first_wins", "draws", "change")
VARIETY = "variety"
"""A result of games whose actions are choices."""


def balance_plan(experiment: Experiment, evolution: IndependentEvolution) -> EvaluationPlan:
    """Raises `BadRequest` for a world whose games do not have two sides."""
    try:
        sides = experiment.mdp.all_sides().sides
    except BadRequest as error:
        raise error.under("ec.lifetime") from None
    if sides != SIDES:
        raise BadRequest(f"balance is between two sides, and a game of this world has {sides}", "ec.lifetime")
    if evolution.objectives == IndependentEvolution.objectives:
        raise BadRequest("fitness is a mean over both sides; take [evenness] or others of the game", "ec.objectives")
    plan = train_plan(experiment, evolution, BalanceEvaluator)
    for gene in plan.space.genes:
        if gene.name.startswith("mdp."):
            _check_designed(gene, experiment)

    def evaluate(individual: Individual) -> Metrics:
        """Numbers of the individual's game on the evaluation's episodes."""
        assert plan.learner is not None
        world = replace(with_values(experiment, plan.space.values(individual.genes)).mdp)  # a copy, since it is closed
        keys = seeds.Episodes(experiment.seed, "evaluate", evaluation=True)
        try:
            played, _ = play_game(world, plan.learner(individual), keys, experiment.eval.episodes, experiment)
        finally:
            world.close()
        result = played | {"change": changed(experiment, plan.space.genes, individual.genes)}
        return {f"eval/{name}_mean": mean(x) for name, x in result.items()}

    choices = heads(spec(experiment.mdp).action)
    return replace(plan, evaluate=evaluate, results=(*RESULTS, VARIETY) if choices else RESULTS)


class BalanceEvaluator(TrainEvaluator):
    """Trains a learner on both sides of the individual's game, and judges the game by how they play it."""

    opponents: Opponents | None = SelfPlay()

    def _judged(self, run: Run, individual: Individual, points: Array | None) -> IndividualResult:
        e = self.evolution
        width = min(-(-e.episodes // SIDES), SLOTS // SIDES)
        keys = fitness_episodes(self.experiment.seed, e, width, [individual.id])
        result, cost = play_game(run.experiment.mdp, run.learner, keys, e.episodes, run.experiment)
        result["change"] = changed(self.experiment, self.space.genes, individual.genes)
        numbers = [objective_value(objective, result) for objective in e.objectives]
        return IndividualResult(numbers, cost, result, None, None, "")


def play_game(
    world: World, learner: Acting, keys: seeds.Episodes, episodes: int, experiment: Experiment
) -> tuple[dict[str, Array], int]:
    """Let a learner play both sides of a game, at least so many episodes of a side.

    Return the results by name, [E], [G] or [1], and the environment steps. Raises `NotFinite`.
    """
    both = world.all_sides()
    number = -(-episodes // SIDES) * SIDES
    choices = Choices(spec(both).action)
    played = play_keyed_episodes(
        both, learner, keys, number, experiment.eval.max_steps, deterministic=False, count=choices.count
    )
    result, cost = numbers_of_episodes(played, SIDES)
    won = np.array([points(first, second) for first, second in zip(played[::SIDES], played[1::SIDES], strict=True)])
    result |= {"evenness": np.array([balance.evenness(won)]), "first_wins": won, "draws": (won == 0.5).astype(float)}
    if choices.heads:
        result[VARIETY] = np.array([choices.variety()])
    return result, cost


class Choices:
    """Counts how often each side makes each choice."""

    def __init__(self, action: Action) -> None:
        self.heads = () if isinstance(action, Box) else heads(action)
        self.counts = [np.zeros((SIDES, n), np.int64) for n in self.heads]

    def count(self, slots: Array, actions: Array) -> None:
        """Count the actions [n, K] of slots [n]."""
        for component, counts in enumerate(self.counts):
            np.add.at(counts, (slots % SIDES, actions[:, component].astype(np.int64)), 1)

    def variety(self) -> float:
        """The mean over sides and components of an action."""
        return float(np.mean([balance.variety(row) for counts in self.counts for row in counts]))


def changed(experiment: Experiment, searched: tuple[Gene, ...], coordinates: Array) -> Array:
    """How far the genes of the world, at these coordinates [G], are from the experiment's own values, [1]."""
    differences = [
        _difference(gene, x, experiment)
        for gene, x in zip(searched, coordinates, strict=True)
        if gene.name.startswith("mdp.")
    ]
    return np.array([balance.change(differences)])


def _difference(gene: Gene, x: float, experiment: Experiment) -> float:
    own = value_of(experiment, gene.name)
    if gene.choices:
        return float(gene.value(x) != own)
    low, high = (gene.coordinate(gene.value(end)) for end in gene.bounds)  # bounds of whole numbers lie between them
    designed = math.log(float(own)) if gene.log else float(own)  # perhaps outside the range
    return (gene.coordinate(gene.value(x)) - designed) / (high - low) if high > low else 0.0


def _check_designed(gene: Gene, experiment: Experiment) -> None:
    """Raise `BadRequest` for a range without a distance from the config's own value."""
    own = value_of(experiment, gene.name)
    if gene.choices or (gene.knows(own) and not (gene.log and float(own) <= 0)):
        return
    kind = "a number above 0" if gene.log else "a number"
    raise BadRequest(f"its change is counted from {gene.name}={own}, which is not {kind}", f"ec.genes.{gene.name}")
