"""Evaluates individuals by the episodes that their weights play (``ec.lifetime=play``).

Letters in shapes: K individuals of one task, E episodes.
"""

from __future__ import annotations

import math
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evorl.ec.core import IndependentEvolution, Individual, unpack
from evorl.ec.space import Gene, Space
from evorl.mdp.core import StateDict, World
from evorl.nets.statistics import Moments
from evorl.population.episodes import SLOTS, evaluation_world, fitness_episodes
from evorl.population.evaluation_plan import EvaluationPlan
from evorl.population.genes import genes, with_values
from evorl.population.objectives import result_of_episodes
from evorl.population.results import (
    WITHOUT_RESULT,
    IndividualResult,
    TaskResult,
    failed_result,
    why,
    with_seconds,
)
from evorl.rl.core import Learner
from evorl.rl.evaluation import (
    EvaluationNoise,
    episodes_in_order,
    episodes_per_slot,
    in_whole_games,
    limited_arena,
    play_slots,
)
from evorl.rl.observation_statistics import ObservationStatistics
from evorl.rl.stacked_policies import Actor, StackedPolicies
from evorl.training.experiment import Experiment
from evorl.training.train import errors_under_mdp, spec
from evorl.util.errors import BadRequest

Array = NDArray[Any]
TASKS = 4  # tasks that the slots are divided into if ec.together is null


def play_plan(experiment: Experiment, evolution: IndependentEvolution) -> EvaluationPlan:
    if not experiment.rl.policy_head:
        raise BadRequest("plays the weights of a policy, and this learner has action values; rl=ppo has one", "ec")
    searched = genes(evolution.genes, experiment)
    for gene in searched:
        if gene.name.startswith("rl."):
            raise BadRequest("lifetime=play learns nothing, so no key of rl can be a gene", f"ec.genes.{gene.name}")
    world = spec(experiment.mdp.evaluation_world())
    actor = Actor(world, experiment.rl.net)
    fresh = None if evolution.start == "zeros" else partial(actor.fresh, experiment.seed, "weights")
    space = Space(searched, actor.size, fresh, tuple(actor.layout.sizes))
    slots = evolution.slots or evolution.population
    together = evolution.together or math.ceil(slots / TASKS)

    def learner(individual: Individual) -> Learner:
        whole = experiment.rl.learner(world, experiment.seed, torch.device("cpu"))
        state = whole.state_dict()
        assert individual.weights is not None
        own = {"policy": actor.whole(individual.weights, state["policy"])}
        whole.load_policy({**state, **(individual.memory or {}), **own})
        return whole

    def begin(state: StateDict) -> tuple[NDArray[np.float32], StateDict | None]:
        whole = experiment.rl.learner(world, experiment.seed, torch.device("cpu"))
        whole.load_policy(state)
        own = whole.state_dict()
        return actor.share(own["policy"]), None if own["moments"] is None else {"moments": own["moments"]}

    moments = partial(Moments.of, world.inputs, experiment.rl.normalize_inputs)
    make = partial(PlayEvaluator, experiment, evolution, searched, together)
    return EvaluationPlan(space, make, together, learner, evolution.objective_names, begin, moments)


class PlayEvaluator:
    """Plays episodes with evolved weights; all policies of a task act in one forward pass.

    If inputs are normalised, all individuals of a task normalise by the same statistics (in their memory). The inputs
    that they see go into separate statistics, which the task's result returns. All individuals of a task also share
    one cap on the steps of an episode.
    """

    def __init__(
        self,
        experiment: Experiment,
        evolution: IndependentEvolution,
        searched: tuple[Gene, ...],
        together: int,
        member: int,
    ) -> None:
        torch.set_num_threads(experiment.rl.threads)
        self.experiment, self.evolution, self.space, self.together = experiment, evolution, Space(searched), together
        self._let_go = experiment.mdp.hold()  # worlds of individuals are closed one after the other
        self.actor: Actor | None = None
        self.seen: Moments | None = None  # statistics of the inputs of this task so far

    def evaluate(self, packed: StateDict) -> TaskResult:
        self.seen = None
        answers = with_seconds(self._evaluate, unpack(packed))
        return TaskResult(answers, None if self.seen is None else self.seen.state_dict())

    def close(self) -> None:
        self._let_go()

    def _evaluate(self, individuals: list[Individual]) -> list[IndividualResult]:
        if not self.space.genes:
            return self._play(_capped_world(self.experiment.mdp.evaluation_world(), individuals[0]), individuals)
        return [answer for individual in individuals for answer in self._alone(individual)]

    def _alone(self, individual: Individual) -> list[IndividualResult]:
        """Evaluate an individual in its own world, which its genes change."""
        try:
            with closing(with_values(self.experiment, self.space.values(individual.genes)).mdp) as world:
                with errors_under_mdp():
                    evaluated = _capped_world(evaluation_world(world), individual)
                return self._play(evaluated, [individual])
        except BadRequest as error:
            return [failed_result(self.evolution, str(error))]

    def _play(self, world: World, individuals: list[Individual]) -> list[IndividualResult]:
        """Play a world. A short task is padded, so that a policy's bits do not depend on the number of individuals."""
        e = self.evolution
        crowd = 1 if self.space.genes else self.together
        rows = [*individuals, *individuals[-1:] * (crowd - len(individuals))]
        number = in_whole_games(world, e.episodes)
        games = min(number // world.sides, max(1, SLOTS // (crowd * world.sides)))
        width = games * world.sides  # each side of a game plays an episode
        episodes = fitness_episodes(self.experiment.seed, e, games, [row.id for row in rows])
        with errors_under_mdp():
            arena = limited_arena(world, crowd * width, episodes, self.experiment.eval.max_steps)
        try:
            if self.actor is None:
                self.actor = Actor(arena.spec, self.experiment.rl.net)
            weights = np.stack([row.weights for row in rows if row.weights is not None])
            policies = StackedPolicies(self.actor, weights, self._known(self.actor, rows[0]))
            seen = self._moments(self.actor)
            watch = None if seen is None else ObservationStatistics(seen, arena.slots)
            numbers = [
                *episodes_per_slot(number, width) * len(individuals),
                *[0] * width * (crowd - len(individuals)),
            ]
            done = play_slots(arena, policies, EvaluationNoise(arena, 0, deterministic=True), numbers, watch)
        except WITHOUT_RESULT as error:  # from the world; rows are independent, but the row at fault is unknown
            if len(individuals) == 1:
                return [failed_result(e, why(error))]
            return [answer for individual in individuals for answer in self._play(world, [individual])]
        finally:
            arena.close()
        self._saw(seen)
        groups = [done[k * width : (k + 1) * width] for k in range(len(individuals))]
        return [result_of_episodes(e, episodes_in_order(group, number), world.sides) for group in groups]

    def _moments(self, actor: Actor) -> Moments | None:
        return Moments.of(actor.spec.inputs, self.experiment.rl.normalize_inputs)

    def _known(self, actor: Actor, individual: Individual) -> Moments | None:
        """Return the statistics that normalise an individual's inputs."""
        moments = self._moments(actor)
        if moments is not None and individual.memory is not None:
            moments.load_state_dict(individual.memory["moments"])
        return moments

    def _saw(self, seen: Moments | None) -> None:
        if self.seen is None or seen is None:
            self.seen = seen
        else:
            self.seen.merge(seen.state_dict())


def _capped_world(world: World, individual: Individual) -> World:
    """Return the world with the individual's cap on episode lengths, if it has one."""
    cap = (individual.memory or {}).get("cap")
    return world if cap is None else world.capped(cap)
