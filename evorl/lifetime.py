"""What evaluating an individual means: members of a run's group that turn individuals into objectives.

An evaluation is a pure function of the individual (its id, genes, weights and memory) and the experiment, so it may
run anywhere, and again where its process was killed. Letters in shapes: K individuals of one task, E episodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from evorl.cluster.local import Local
from evorl.ec.core import Evaluation, Evolution, Individual, unpack
from evorl.ec.space import Gene, Space
from evorl.experiment import Experiment
from evorl.genes import genes, with_values
from evorl.mdp.core import StateDict, World
from evorl.mdp.problem import Problem
from evorl.nets.flat import Layout
from evorl.rl.core import Acting, Episode, Learner, NotFinite
from evorl.rl.crowd import Actor, Crowd
from evorl.rl.judge import EvaluationNoise, in_order, played, shares
from evorl.train import Run, spec
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest, nearest

Array = NDArray[Any]
SLOTS = 256  # episodes at once in a task of lifetime=play, about; a constant, since it decides the last bits
TASKS = 4  # tasks that the evaluations in flight make where ec.together is not given


class Answer(NamedTuple):
    """What became of an individual, as it comes from a member; plain data and arrays."""

    objectives: list[float]
    cost: int  # environment steps
    result: dict[str, Array]  # of each episode [E]
    weights: Array | None  # [D] where they changed
    memory: StateDict | None
    failed: str  # why it has no objectives; "" where it has
    seconds: float = 0.0  # of wall time; its share where several were evaluated together


class Lifetime(Protocol):
    """A member of the group that evaluates."""

    def evaluate(self, packed: StateDict) -> list[Answer]:
        """What becomes of each of the individuals that `evorl.ec.core.pack` took, in order."""
        ...


@dataclass(frozen=True)
class Plan:
    """How an experiment's individuals are made and evaluated."""

    space: Space
    make: Callable[[int], Lifetime]
    """The factory of the group's members."""
    together: int
    """Individuals of one task."""
    learner: Callable[[Individual], Learner] | None
    """The individual as a policy that can be judged and saved; None where there is none."""
    names: tuple[str, ...]
    """Of the objectives: ``fitness``, ``fitness+0.5*lazy``."""


def plan(experiment: Experiment, evolution: Evolution) -> Plan:
    """Raises `BadRequest` for what cannot be evolved."""
    _check(experiment, evolution)
    if isinstance(experiment.mdp, Problem):
        return _function(experiment.mdp, evolution)
    return (_train if evolution.lifetime == "train" else _play)(experiment, evolution)


def _check(experiment: Experiment, evolution: Evolution) -> None:
    if evolution.start == "zeros" and evolution.lifetime == "train":
        raise BadRequest("is for weights that only play; a learner begins with a network's", "ec.start")
    problem = experiment.mdp if isinstance(experiment.mdp, Problem) else None
    if problem is not None and evolution.genes:
        raise BadRequest("a problem's numbers are the genes; there are no others", "ec.genes")
    if not evolution.several and (len(evolution.objectives) if problem is None else problem.count) > 1:
        raise BadRequest("this evolution takes one objective; ec=nsga2 takes several", "ec.objectives")


def evaluated(individual: Individual, answer: Sequence[Any]) -> tuple[Evaluation, str, float]:
    """A member's answer about an individual, why it failed ("" where it did not), and how many seconds it took."""
    one = Answer(*answer)
    if one.weights is not None:
        individual = individual._replace(weights=one.weights)
    individual = individual._replace(memory=one.memory)
    return Evaluation(individual, tuple(one.objectives), one.cost, one.result), one.failed, one.seconds


def _timed(evaluate: Callable[[list[Individual]], list[Answer]], individuals: list[Individual]) -> list[Answer]:
    """The answers, each with its share of the time that they took."""
    began = time.monotonic()
    answers = evaluate(individuals)
    share = (time.monotonic() - began) / len(answers)
    return [one._replace(seconds=share) for one in answers]


# ------------------------------------------------------------------ a function


def _function(problem: Problem, evolution: Evolution) -> Plan:
    low, high = problem.bounds
    slots = evolution.slots or evolution.population
    return Plan(Space.box(low.tolist(), high.tolist()), partial(Function, problem), slots, None, problem.names)


class Function:
    """The genes are what is evaluated, and the objectives are the function's own; one step each."""

    def __init__(self, problem: Problem, member: int) -> None:
        self.problem = problem

    def evaluate(self, packed: StateDict) -> list[Answer]:
        return _timed(self._evaluate, unpack(packed))

    def _evaluate(self, individuals: list[Individual]) -> list[Answer]:
        values = self.problem.evaluate(np.array([one.genes for one in individuals]))
        return [Answer(row, 1, self._named(row), None, None, "") for row in values.tolist()]

    def _named(self, row: list[float]) -> dict[str, Array]:
        return {name: np.array([x]) for name, x in zip(self.problem.names, row, strict=True)}


# ------------------------------------------------------------------ play


def _play(experiment: Experiment, evolution: Evolution) -> Plan:
    found = genes(evolution.genes, experiment)
    for gene in found:
        if gene.name.startswith("rl."):
            raise BadRequest("lifetime=play learns nothing, so no key of rl matters", f"ec.genes.{gene.name}")
    world = spec(experiment.mdp.judge())
    actor = Actor(world, experiment.rl.net)
    fresh = None if evolution.start == "zeros" else partial(actor.fresh, experiment.seed, "weights")
    space = Space(found, actor.size, fresh, tuple(actor.layout.sizes))
    slots = evolution.slots or evolution.population
    together = evolution.together or math.ceil(slots / TASKS)

    def learner(individual: Individual) -> Learner:
        whole = experiment.rl.learner(world, experiment.seed, torch.device("cpu"))
        state = whole.state_dict()
        assert individual.weights is not None
        whole.load_policy({**state, "policy": actor.whole(individual.weights, state["policy"])})
        return whole

    make = partial(Play, experiment, evolution, found, together)
    return Plan(space, make, together, learner, _names(evolution))


class Play:
    """Episodes played by weights that evolve; the policies of a task act in one forward pass."""

    def __init__(
        self, experiment: Experiment, evolution: Evolution, found: tuple[Gene, ...], together: int, member: int
    ) -> None:
        torch.set_num_threads(experiment.rl.threads)
        self.experiment, self.evolution, self.space, self.together = experiment, evolution, Space(found), together
        self.actor: Actor | None = None

    def evaluate(self, packed: StateDict) -> list[Answer]:
        return _timed(self._evaluate, unpack(packed))

    def _evaluate(self, individuals: list[Individual]) -> list[Answer]:
        e = self.experiment
        if not self.space.genes:
            return self._play(e.mdp.judge(), individuals)
        worlds = [with_values(e, self.space.values(one.genes)).mdp.judge() for one in individuals]
        return [answer for world, one in zip(worlds, individuals, strict=True) for answer in self._play(world, [one])]

    def _play(self, world: World, individuals: list[Individual]) -> list[Answer]:
        """Play a world; short tasks are filled up, so that a policy's bits never depend on how many there are."""
        e = self.evolution
        crowd = 1 if self.space.genes else self.together
        rows = [*individuals, *individuals[-1:] * (crowd - len(individuals))]
        most = max(1, SLOTS // (crowd * world.sides))
        width = min(e.episodes, most) * world.sides
        episodes = _fitness_episodes(self.experiment.seed, e, width // world.sides, [one.id for one in rows])
        arena = world.arena(crowd * width, episodes)
        try:
            if self.actor is None:
                self.actor = Actor(arena.spec, self.experiment.rl.net)
            policies = Crowd(self.actor, np.stack([one.weights for one in rows if one.weights is not None]))
            numbers = [*shares(e.episodes, width) * len(individuals), *[0] * width * (crowd - len(individuals))]
            done = played(arena, policies, EvaluationNoise(arena, 0, deterministic=True), numbers)
        except NotFinite as error:  # the world's: one row's poisons no other, but which is not known
            if len(individuals) == 1:
                return [_failed(e, str(error))]
            return [answer for one in individuals for answer in self._play(world, [one])]
        finally:
            arena.close()
        groups = [done[k * width : (k + 1) * width] for k in range(len(individuals))]
        return [_answer(e, in_order(group, e.episodes)) for group in groups]


# ------------------------------------------------------------------ train


def _train(experiment: Experiment, evolution: Evolution) -> Plan:
    found = genes(evolution.genes, experiment)
    world = spec(experiment.mdp)

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

    space = Space(found, sum(layout.sizes), fresh, tuple(layout.sizes))
    make = partial(Train, experiment, evolution, found)
    return Plan(space, make, evolution.together or 1, learner, _names(evolution))


class Train:
    """A learner trains the individual's weights under its genes, then plays; the weights go back changed."""

    def __init__(self, experiment: Experiment, evolution: Evolution, found: tuple[Gene, ...], member: int) -> None:
        self.experiment, self.evolution, self.space = experiment, evolution, Space(found)

    def evaluate(self, packed: StateDict) -> list[Answer]:
        return [answer for one in unpack(packed) for answer in _timed(self._evaluate, [one])]

    def _evaluate(self, individuals: list[Individual]) -> list[Answer]:
        return [self._live(one) for one in individuals]

    def _live(self, one: Individual) -> Answer:
        own = with_values(self.experiment, self.space.values(one.genes))
        seed = seeds.key(own.seed, "life", one.id) >> 33
        run = Run(replace(own, seed=seed, cluster=Local(), ec=None))
        try:
            return self._trained(run, one)
        except NotFinite as error:
            return _failed(self.evolution, str(error))
        finally:
            run.close()

    def _trained(self, run: Run, one: Individual) -> Answer:
        e = self.evolution
        layout = _layout(run.learner)
        run.steps = began = one.memory["steps"] if one.memory else 0  # schedules go on along a line of descent
        _inherit(run.learner, layout, one.weights, one.memory)
        while run.steps < began + e.train_steps:
            run.iterate()
        episodes = _judged(run.experiment.mdp, run.learner, self.experiment.seed, e, one.id)
        state = run.learner.state_dict()
        kept = {name: part for name, part in state.items() if name != "policy"}
        if not e.inherit_optimizer:
            kept.pop("optimizer")
        answer = _answer(e, episodes)
        return answer._replace(
            cost=answer.cost + run.steps - began,
            weights=layout.flatten(state["policy"]).numpy(),
            memory={"steps": run.steps, "learner": kept},
        )


def _layout(learner: Learner) -> Layout:
    policy = learner.state_dict()["policy"]
    return Layout(tuple(policy), tuple(x.shape for x in policy.values()))


def _inherit(learner: Learner, layout: Layout, weights: Array | None, memory: Mapping[str, Any] | None) -> None:
    """Give a learner an individual's weights, and whatever else the individual hands on."""
    assert weights is not None
    state = {**learner.state_dict(), **(memory["learner"] if memory else {})}
    learner.load_state_dict({**state, "policy": layout.unflatten(torch.tensor(weights))})


def _judged(world: World, learner: Acting, seed: int, evolution: Evolution, number: int) -> list[Episode]:
    world = world.judge()
    width = math.ceil(min(evolution.episodes, SLOTS) / world.sides) * world.sides
    arena = world.arena(width, _fitness_episodes(seed, evolution, width // world.sides, [number]))
    try:
        noise = EvaluationNoise(arena, 0, deterministic=True)
        return in_order(played(arena, learner, noise, shares(evolution.episodes, width)), evolution.episodes)
    finally:
        arena.close()


# ------------------------------------------------------------------ episodes and objectives


def _fitness_episodes(seed: int, evolution: Evolution, width: int, ids: list[int]) -> seeds.Episodes:
    """The keys of ``width`` games of each individual: the same for all, or each individual's own."""
    common = evolution.seeds == "common"
    return seeds.Grouped(seed, evaluation=True, width=width, groups=tuple(
        "fitness" if common else f"fitness {number}" for number in ids
    ))  # fmt: skip


def _answer(evolution: Evolution, episodes: list[Episode]) -> Answer:
    names = sorted({name for one in episodes for name in one.results})
    result = {name: np.array([one.results[name] for one in episodes]) for name in names}
    result |= {"return": np.array([one.ret for one in episodes]), "length": np.array([one.length for one in episodes])}
    result.setdefault("fitness", result["return"])
    return Answer(
        [objective(one, result) for one in evolution.objectives], int(result["length"].sum()), result, None, None, ""
    )


def _names(evolution: Evolution) -> tuple[str, ...]:
    return tuple(title(term) for term in evolution.objectives)


def title(term: str | dict[str, float]) -> str:
    """What an objective is called: ``fitness``, ``fitness+0.5*lazy``."""
    weights = {term: 1.0} if isinstance(term, str) else term
    text = "+".join(name if weight == 1 else f"{weight:g}*{name}" for name, weight in weights.items())
    return text.replace("+-", "-")


def objective(term: str | dict[str, float], result: Mapping[str, Array], key: str = "ec.objectives") -> float:
    """A named result's mean over the episodes, or a weighted sum of such. Raises `BadRequest` for an unknown name."""
    weights = {term: 1.0} if isinstance(term, str) else term
    for name in weights:
        if name not in result:
            choices = sorted(result)
            hint = nearest(name, choices) or f"; there are: {', '.join(choices)}"
            raise BadRequest(f"this world reports no {name}{hint}", key)
    return float(sum(weight * result[name].mean() for name, weight in weights.items()))


def _failed(evolution: Evolution, reason: str) -> Answer:
    return Answer([math.nan] * len(evolution.objectives), 0, {}, None, None, reason)
