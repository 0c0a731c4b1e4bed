"""Evaluates individuals by training a learner with their genes, then playing (``ec.lifetime=train``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evorl.cluster.core import heartbeat
from evorl.cluster.local import Local
from evorl.ec.core import IndependentEvolution, Individual, unpack
from evorl.ec.early_stopping import trains_until
from evorl.ec.reward import REWARD
from evorl.ec.space import Gene, Space
from evorl.mdp.core import StateDict, World
from evorl.mdp.shaped import RewardNetwork, Scales, Shaped, numbers, scales
from evorl.nets.flat import Layout
from evorl.opponents.appointed import Appointed
from evorl.opponents.core import Opponents, PastSelves
from evorl.opponents.sampler import OpposedLockstep
from evorl.population.episodes import play_fitness_episodes
from evorl.population.evaluation_plan import EvaluationPlan
from evorl.population.genes import genes, with_values
from evorl.population.objectives import result_of_episodes
from evorl.population.opposed import ACTING, appointed, games_of, layout_of, play_match, sides_of, split
from evorl.population.results import WITHOUT_RESULT, IndividualResult, TaskResult, failed_result, why, with_seconds
from evorl.rl.core import Learner, inherited, optimizers
from evorl.training.experiment import Experiment
from evorl.training.train import Run, check_learner, check_rewards, spec
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import with_whole_rows

Array = NDArray[Any]


def train_plan(
    experiment: Experiment, evolution: IndependentEvolution, kind: type[TrainEvaluator] | None = None
) -> EvaluationPlan:
    """``kind``: the class of the evaluator, if not `TrainEvaluator`."""
    check_rewards(experiment)
    world = spec(experiment.training_world)
    searched = genes(evolution.genes, experiment)
    if evolution.reward.kind != "none":
        searched += evolution.reward.genes(RewardNetwork.weights(numbers(world), evolution.reward.hidden))

    def begun(seed: int) -> Learner:
        return experiment.rl.learner(world, seed, torch.device("cpu"))

    first = begun(0)
    check_learner(first)
    layout = layout_of(first)

    def fresh(number: int) -> NDArray[np.float32]:
        policy = begun(seeds.key(experiment.seed, "weights", number) >> 33).state_dict()["policy"]
        return layout.flatten(policy).numpy()

    def learner(individual: Individual) -> Learner:
        begun_learner = begun(experiment.seed)
        _inherit(begun_learner, layout, individual.weights, individual.memory)
        return begun_learner

    def begin(state: StateDict) -> tuple[NDArray[np.float32], StateDict | None]:
        begun_learner = begun(experiment.seed)
        begun_learner.load_policy(state)
        own = begun_learner.state_dict()
        learned = {**inherited(own), **optimizers(state)}
        return layout.flatten(own["policy"]).numpy(), {"steps": 0, "learner": learned}

    space = Space(searched, sum(layout.sizes), fresh, tuple(layout.sizes))
    make = partial(kind or TrainEvaluator, experiment, evolution, searched)
    check = partial(experiment.rl.check_memory, world, _steps_in_a_replay(experiment, evolution))
    return EvaluationPlan(
        space, make, evolution.together or 1, learner, evolution.objective_names, begin, check_memory=check
    )


def _steps_in_a_replay(experiment: Experiment, evolution: IndependentEvolution) -> int:
    """Environment steps that a replay may hold: of a lifetime, and of those before it whose memory it begins with.

    The latter are an estimate: an equal share of the budget for each of a population.
    """
    budget = experiment.budget.steps or experiment.mdp.budget
    inherited = budget // evolution.population if evolution.hands_on else 0
    return evolution.train_steps + inherited


class TrainEvaluator:
    """Trains a learner from the individual's weights under its genes, then plays; returns the changed weights."""

    opponents: Opponents | None = None
    """Who plays the sides of a game that the learner does not, unless the individual brings its own opponents."""

    def __init__(
        self, experiment: Experiment, evolution: IndependentEvolution, searched: tuple[Gene, ...], member: int
    ) -> None:
        self.experiment, self.evolution, self.space = experiment, evolution, Space(searched)
        self.scales: Scales | None = None  # of observations, for an evolved reward
        self._let_go = experiment.mdp.hold()  # worlds of individuals are closed one after the other

    def evaluate(self, packed: StateDict) -> TaskResult:
        return TaskResult(
            [answer for individual in unpack(packed) for answer in with_seconds(self._evaluate, [individual])]
        )

    def close(self) -> None:
        self._let_go()

    def _evaluate(self, individuals: list[Individual]) -> list[IndividualResult]:
        return [self._live(individual) for individual in individuals]

    def _live(self, individual: Individual) -> IndividualResult:
        individual, against = split(individual)
        if against is not None and "match" in (individual.memory or {}):
            return self._play_match(individual, against)
        pooled = None if against is None else PastSelves(sides=sides_of(against))
        try:
            own = with_values(self.experiment, self.space.values(individual.genes))
            own = replace(own, mdp=self._rewarding(own, individual))
            seed = seeds.key(own.seed, "life", individual.id) >> 33
            run = Run(replace(own, seed=seed, cluster=Local(), ec=None, opponents=pooled or self.opponents))
        except BadRequest as error:
            return self._refused(error)
        # a child's schedules continue its parent's
        run.steps = began = individual.memory["steps"] if individual.memory else 0
        try:
            pool = None if pooled is None or against is None else appointed(pooled, run.learner, against)
            if pool is not None:
                assert isinstance(run.source, OpposedLockstep)
                run.source.pool = pool
            return self._trained(run, individual, pool)
        except BadRequest as error:  # of the world that evaluations play
            return self._refused(error, run.steps - began)
        except WITHOUT_RESULT as error:
            return failed_result(self.evolution, why(error), run.steps - began)
        finally:
            run.close()

    def _refused(self, error: BadRequest, cost: int = 0) -> IndividualResult:
        """The result of an individual whose genes are impossible together. Raises the error if there are no genes."""
        if not self.space.genes:  # every individual would fail
            raise error
        return failed_result(self.evolution, str(error), cost)

    def _rewarding(self, own: Experiment, individual: Individual) -> World:
        """The world that an individual trains in, a copy, since its run closes it: with the reward of its genes."""
        world, reward = replace(own.mdp), self.evolution.reward
        if reward.kind == "none":
            return world
        if self.scales is None:
            self.scales = scales(self.experiment.mdp)
        weights = [
            x for gene, x in zip(self.space.genes, individual.genes, strict=True) if gene.name.startswith(REWARD)
        ]
        network = RewardNetwork(np.array(weights), reward.hidden, reward.scale, self.scales)
        gamma = float(own.rl.per_reward("gamma", spec(own.training_world).rewards)[0])
        return Shaped(world=world, kind=reward.kind, reward=network, gamma=gamma, budget=world.budget)

    def _play_match(self, individual: Individual, against: Mapping[str, Any]) -> IndividualResult:
        """Play in the world of the experiment, whatever the genes are, so that all play the same game."""
        own = self.experiment
        learner = own.rl.learner(spec(own.training_world), own.seed, torch.device("cpu"))
        try:
            return play_match(self.evolution, own.mdp, learner, individual, against)
        except WITHOUT_RESULT as error:
            return failed_result(self.evolution, why(error))

    def _trained(self, run: Run, individual: Individual, pool: Appointed | None) -> IndividualResult:
        e = self.evolution
        layout = layout_of(run.learner)
        began = run.steps
        _inherit(run.learner, layout, individual.weights, individual.memory)
        end = trains_until(e, individual, began)
        while run.steps < end:
            heartbeat()
            run.iterate()
        games = None if pool is None else games_of(pool)
        answer = self._judged(run, individual, None if games is None else games["points"])
        state = run.learner.state_dict()
        left = {"policy"} if e.inherit_optimizer else {"policy", *optimizers(state)}
        kept = {name: with_whole_rows(part) for name, part in state.items() if name not in left}
        memory: StateDict = {"steps": run.steps, "learner": kept}
        if games is not None:
            memory["games"] = games
            memory["acting"] = {"steps": run.steps, "learner": {k: x for k, x in kept.items() if k in ACTING}}
        return answer._replace(
            cost=answer.cost + run.steps - began, weights=layout.flatten(state["policy"]).numpy(), memory=memory
        )

    def _judged(self, run: Run, individual: Individual, points: Array | None) -> IndividualResult:
        """What the episodes say that a trained individual plays; its cost is theirs alone. Raises `NotFinite`."""
        e = self.evolution
        episodes = play_fitness_episodes(run.experiment, run.learner, self.experiment.seed, e, individual.id)
        return result_of_episodes(e, episodes, run.experiment.mdp.evaluation_world().sides, points)


def _inherit(learner: Learner, layout: Layout, weights: Array | None, memory: Mapping[str, Any] | None) -> None:
    """Load an individual's weights and the rest of its memory into a learner.

    Parts that the memory lacks keep their initial state, but a target network begins as a copy. Episodes begin anew, so
    running returns are not taken over.
    """
    assert weights is not None
    known = {name: part for name, part in (memory["learner"] if memory else {}).items() if part is not None}
    if "reward_scale" in known:
        known["reward_scale"] = {**known["reward_scale"], "returns": None}
    policy = layout.unflatten(torch.tensor(weights))
    state = {**learner.state_dict(), **known, "policy": policy}
    if "policy_target" in state and "policy_target" not in known:
        state["policy_target"] = policy
    learner.load_state_dict(state)
