"""Evaluators: the members of a group that turn individuals into objectives.

An evaluation is a pure function of the individual (id, genes, weights, memory) and the experiment. So it can run in any
process, and again after its process was killed. Letters in shapes: K individuals of one task, E episodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from evorl.cluster.core import heartbeat
from evorl.cluster.local import Local
from evorl.ec.core import IndependentEvolution, Individual, unpack
from evorl.ec.space import Gene, Space
from evorl.mdp.core import StateDict, World
from evorl.mdp.problem import Problem
from evorl.nets.flat import Layout
from evorl.nets.statistics import Moments
from evorl.population.genes import genes, with_values
from evorl.population.results import (
    IndividualResult,
    TaskResult,
    failed_result,
    fitness_episodes,
    objective_names,
    result_of_episodes,
    with_seconds,
)
from evorl.rl.core import Acting, Episode, Learner, NotFinite, inherited, optimizers
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
from evorl.training.train import Run, spec
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import with_whole_rows

Array = NDArray[Any]
SLOTS = 256  # approximate episodes at once in a task of lifetime=play; a constant, since it decides the last bits
TASKS = 4  # tasks that the slots are divided into if ec.together is null


class Evaluator(Protocol):
    """A member of the group that evaluates individuals."""

    def evaluate(self, packed: StateDict) -> TaskResult:
        """Evaluate individuals packed by `evorl.ec.core.pack`."""
        ...


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


def evaluation_plan(experiment: Experiment, evolution: IndependentEvolution) -> EvaluationPlan:
    """Plan the evaluations of an experiment. Raises `BadRequest` if it cannot be evolved."""
    _check(experiment, evolution)
    if isinstance(experiment.mdp, Problem):
        return _function_plan(experiment.mdp, evolution)
    return (_train_plan if evolution.lifetime == "train" else _play_plan)(experiment, evolution)


def _check(experiment: Experiment, evolution: IndependentEvolution) -> None:
    if evolution.start == "zeros" and evolution.lifetime == "train":
        raise BadRequest("needs lifetime=play; a learner begins with a network's weights", "ec.start")
    problem = experiment.mdp if isinstance(experiment.mdp, Problem) else None
    if experiment.rl.compile and (evolution.lifetime == "play" or problem is not None):
        raise BadRequest("nothing learns here, so there is nothing to compile", "rl.compile")
    if evolution.caps:
        _check_caps(experiment, evolution)
    if problem is not None and evolution.genes:
        raise BadRequest("a problem's numbers are the genes; there are no others", "ec.genes")
    if problem is not None and evolution.objectives not in (IndependentEvolution.objectives, problem.names):
        raise BadRequest(f"a problem's are all its own: {', '.join(problem.names)}", "ec.objectives")
    if not evolution.several and (len(evolution.objectives) if problem is None else problem.count) > 1:
        raise BadRequest("this evolution takes one; ec=nsga2, ec=nsga3 and ec=random take several", "ec.objectives")


def _check_caps(experiment: Experiment, evolution: IndependentEvolution) -> None:
    if isinstance(experiment.mdp, Problem) or evolution.lifetime == "train":
        raise BadRequest("is for episodes that weights play; there are none here", "ec.cap")
    try:
        experiment.mdp.evaluation_world().capped(1).ready()
    except BadRequest as error:
        raise BadRequest(str(error.args[0]), "ec.cap") from None


# ------------------------------------------------------------------ a function


def _function_plan(problem: Problem, evolution: IndependentEvolution) -> EvaluationPlan:
    low, high = problem.bounds
    together = evolution.together or evolution.slots or evolution.population
    return EvaluationPlan(
        Space.box(low.tolist(), high.tolist()), partial(FunctionEvaluator, problem), together, None, problem.names
    )


class FunctionEvaluator:
    """Evaluates a problem's function at the individuals' genes; each evaluation costs one step."""

    def __init__(self, problem: Problem, member: int) -> None:
        self.problem = problem

    def evaluate(self, packed: StateDict) -> TaskResult:
        return TaskResult(with_seconds(self._evaluate, unpack(packed)))

    def _evaluate(self, individuals: list[Individual]) -> list[IndividualResult]:
        values = self.problem.evaluate(np.array([one.genes for one in individuals]))
        return [IndividualResult(row, 1, self._named(row), None, None, "") for row in values.tolist()]

    def _named(self, row: list[float]) -> dict[str, Array]:
        return {name: np.array([x]) for name, x in zip(self.problem.names, row, strict=True)}


# ------------------------------------------------------------------ play


def _play_plan(experiment: Experiment, evolution: IndependentEvolution) -> EvaluationPlan:
    if not experiment.rl.policy_head:
        raise BadRequest("plays the weights of a policy, and this learner has action values; rl=ppo has one", "ec")
    found = genes(evolution.genes, experiment)
    for gene in found:
        if gene.name.startswith("rl."):
            raise BadRequest("lifetime=play learns nothing, so no key of rl can be a gene", f"ec.genes.{gene.name}")
    world = spec(experiment.mdp.evaluation_world())
    actor = Actor(world, experiment.rl.net)
    fresh = None if evolution.start == "zeros" else partial(actor.fresh, experiment.seed, "weights")
    space = Space(found, actor.size, fresh, tuple(actor.layout.sizes))
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
    make = partial(PlayEvaluator, experiment, evolution, found, together)
    return EvaluationPlan(space, make, together, learner, objective_names(evolution), begin, moments)


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
        found: tuple[Gene, ...],
        together: int,
        member: int,
    ) -> None:
        torch.set_num_threads(experiment.rl.threads)
        self.experiment, self.evolution, self.space, self.together = experiment, evolution, Space(found), together
        self.actor: Actor | None = None
        self.seen: Moments | None = None  # statistics of the inputs of this task so far

    def evaluate(self, packed: StateDict) -> TaskResult:
        self.seen = None
        answers = with_seconds(self._evaluate, unpack(packed))
        return TaskResult(answers, None if self.seen is None else self.seen.state_dict())

    def _evaluate(self, individuals: list[Individual]) -> list[IndividualResult]:
        if not self.space.genes:
            return self._play(_capped_world(self.experiment.mdp.evaluation_world(), individuals[0]), individuals)
        return [answer for one in individuals for answer in self._alone(one)]

    def _alone(self, one: Individual) -> list[IndividualResult]:
        """Evaluate an individual in its own world, which its genes change."""
        try:
            world = with_values(self.experiment, self.space.values(one.genes)).mdp
            evaluated = _capped_world(world.evaluation_world(), one)
        except BadRequest as error:
            return [failed_result(self.evolution, str(error))]
        with closing(world):
            return self._play(evaluated, [one])

    def _play(self, world: World, individuals: list[Individual]) -> list[IndividualResult]:
        """Play a world. A short task is padded, so that a policy's bits do not depend on the number of individuals."""
        e = self.evolution
        crowd = 1 if self.space.genes else self.together
        rows = [*individuals, *individuals[-1:] * (crowd - len(individuals))]
        number = in_whole_games(world, e.episodes)
        games = min(number // world.sides, max(1, SLOTS // (crowd * world.sides)))
        width = games * world.sides  # each side of a game plays an episode
        episodes = fitness_episodes(self.experiment.seed, e, games, [one.id for one in rows])
        arena = limited_arena(world, crowd * width, episodes, self.experiment.eval.max_steps)
        try:
            if self.actor is None:
                self.actor = Actor(arena.spec, self.experiment.rl.net)
            weights = np.stack([one.weights for one in rows if one.weights is not None])
            policies = StackedPolicies(self.actor, weights, self._known(self.actor, rows[0]))
            seen = self._moments(self.actor)
            watch = None if seen is None else ObservationStatistics(seen, arena.slots)
            numbers = [
                *episodes_per_slot(number, width) * len(individuals),
                *[0] * width * (crowd - len(individuals)),
            ]
            done = play_slots(arena, policies, EvaluationNoise(arena, 0, deterministic=True), numbers, watch)
        except NotFinite as error:  # from the world; rows are independent, but the row at fault is unknown
            if len(individuals) == 1:
                return [failed_result(e, str(error))]
            return [answer for one in individuals for answer in self._play(world, [one])]
        finally:
            arena.close()
        self._saw(seen)
        groups = [done[k * width : (k + 1) * width] for k in range(len(individuals))]
        return [result_of_episodes(e, episodes_in_order(group, number), world.sides) for group in groups]

    def _moments(self, actor: Actor) -> Moments | None:
        return Moments.of(actor.spec.inputs, self.experiment.rl.normalize_inputs)

    def _known(self, actor: Actor, one: Individual) -> Moments | None:
        """Return the statistics that normalise an individual's inputs."""
        moments = self._moments(actor)
        if moments is not None and one.memory is not None:
            moments.load_state_dict(one.memory["moments"])
        return moments

    def _saw(self, seen: Moments | None) -> None:
        if self.seen is None or seen is None:
            self.seen = seen
        else:
            self.seen.merge(seen.state_dict())


def _capped_world(world: World, one: Individual) -> World:
    """Return the world with the individual's cap on episode lengths, if it has one."""
    cap = (one.memory or {}).get("cap")
    return world if cap is None else world.capped(cap)


# ------------------------------------------------------------------ train


def _train_plan(experiment: Experiment, evolution: IndependentEvolution) -> EvaluationPlan:
    found = genes(evolution.genes, experiment)
    world = spec(experiment.mdp)
    experiment.rl.check_memory(world, evolution.train_steps, experiment.cluster.workers)

    def begun(seed: int) -> Learner:
        return experiment.rl.learner(world, seed, torch.device("cpu"))

    layout = _layout(begun(0))

    def fresh(number: int) -> NDArray[np.float32]:
        policy = begun(seeds.key(experiment.seed, "weights", number) >> 33).state_dict()["policy"]
        return layout.flatten(policy).numpy()

    def learner(individual: Individual) -> Learner:
        one = begun(experiment.seed)
        _inherit(one, layout, individual.weights, individual.memory)
        return one

    def begin(state: StateDict) -> tuple[NDArray[np.float32], StateDict | None]:
        one = begun(experiment.seed)
        one.load_policy(state)
        own = one.state_dict()
        learned = {**inherited(own), **optimizers(state)}
        return layout.flatten(own["policy"]).numpy(), {"steps": 0, "learner": learned}

    space = Space(found, sum(layout.sizes), fresh, tuple(layout.sizes))
    make = partial(TrainEvaluator, experiment, evolution, found)
    return EvaluationPlan(space, make, evolution.together or 1, learner, objective_names(evolution), begin)


class TrainEvaluator:
    """Trains a learner from the individual's weights under its genes, then plays; returns the changed weights."""

    def __init__(
        self, experiment: Experiment, evolution: IndependentEvolution, found: tuple[Gene, ...], member: int
    ) -> None:
        self.experiment, self.evolution, self.space = experiment, evolution, Space(found)

    def evaluate(self, packed: StateDict) -> TaskResult:
        return TaskResult([answer for one in unpack(packed) for answer in with_seconds(self._evaluate, [one])])

    def _evaluate(self, individuals: list[Individual]) -> list[IndividualResult]:
        return [self._live(one) for one in individuals]

    def _live(self, one: Individual) -> IndividualResult:
        try:
            own = with_values(self.experiment, self.space.values(one.genes))
            own = replace(own, mdp=replace(own.mdp))  # a copy, since run.close() closes it
            run = Run(replace(own, seed=seeds.key(own.seed, "life", one.id) >> 33, cluster=Local(), ec=None))
        except BadRequest as error:
            if not self.space.genes:  # without genes, every individual would fail
                raise
            return failed_result(self.evolution, str(error))
        try:
            return self._trained(run, one)
        except NotFinite as error:
            return failed_result(self.evolution, str(error), run.steps - (one.memory["steps"] if one.memory else 0))
        finally:
            run.close()

    def _trained(self, run: Run, one: Individual) -> IndividualResult:
        e = self.evolution
        layout = _layout(run.learner)
        run.steps = began = one.memory["steps"] if one.memory else 0  # a child's schedules continue its parent's
        _inherit(run.learner, layout, one.weights, one.memory)
        while run.steps < began + e.train_steps:
            heartbeat()
            run.iterate()
        episodes = _play_fitness_episodes(run.experiment, run.learner, self.experiment.seed, e, one.id)
        state = run.learner.state_dict()
        left = {"policy"} if e.inherit_optimizer else {"policy", *optimizers(state)}
        kept = {name: with_whole_rows(part) for name, part in state.items() if name not in left}
        answer = result_of_episodes(e, episodes, run.experiment.mdp.evaluation_world().sides)
        return answer._replace(
            cost=answer.cost + run.steps - began,
            weights=layout.flatten(state["policy"]).numpy(),
            memory={"steps": run.steps, "learner": kept},
        )


def _layout(learner: Learner) -> Layout:
    policy = learner.state_dict()["policy"]
    return Layout(tuple(policy), tuple(x.shape for x in policy.values()))


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


def _play_fitness_episodes(
    experiment: Experiment, learner: Acting, seed: int, evolution: IndependentEvolution, number: int
) -> list[Episode]:
    world = experiment.mdp.evaluation_world()
    width = in_whole_games(world, min(evolution.episodes, SLOTS))
    keys = fitness_episodes(seed, evolution, width // world.sides, [number])
    return play_keyed_episodes(
        world, learner, keys, in_whole_games(world, evolution.episodes), experiment.eval.max_steps
    )


def play_keyed_episodes(
    world: World, learner: Acting, keys: seeds.Episodes, episodes: int, max_steps: int
) -> list[Episode]:
    """Play the episodes with these keys, in whole games, with the deterministic policy. Raises `NotFinite`."""
    width = in_whole_games(world, min(episodes, SLOTS))
    arena = limited_arena(world, width, keys, max_steps)
    try:
        noise = EvaluationNoise(arena, 0, deterministic=True)
        return episodes_in_order(play_slots(arena, learner, noise, episodes_per_slot(episodes, width)), episodes)
    finally:
        arena.close()
