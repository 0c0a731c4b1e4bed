"""What the evolvers of AES-RL's family share: roles, keys, and the steady-state search with a diagonal Gaussian.

An individual is a policy. Its role says what happens to it before it plays: EVOLVED individuals play as they are,
TRAINED ones first follow the gradient of a critic that all share. The evolver knows neither gradients nor critics. It
gets back the weights that were played, and their return. Who runs it (`evorl.population.critic_loop`) trains.

A steady-state search proposes one individual at a time and learns from each in the order of arrival. Some rules compare
an individual with the mean of the distribution. They ask for an evaluation of the mean, an individual of role MEAN,
when the individual's return has arrived, and learn when that has arrived too.

Letters in shapes: D weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from evorl.ec.core import (
    Evaluation,
    Evolution,
    Evolver,
    Individual,
    Metrics,
    check_due,
    failed,
    objectives,
    pack_evaluations,
    unpack_evaluations,
)
from evorl.ec.space import Coordinates, Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import fitness, initial_vector
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.saved import restore, saved
from evorl.util.types import Count, Fraction, NonNegative, Positive, StateDict

EVOLVED, TRAINED, MEAN = "evolved", "trained", "mean"

CriticOrder = Literal["each", "before", "beside"]
"""When the critic learns: for each trained individual just before it, for all of them before the first, or all the time
beside the actors."""

WarmUpActions = Literal["uniform", "told", "policy"]


@dataclass(frozen=True, kw_only=True)
class SharedCriticEvolution(Evolution):
    """Keys of every evolver whose individuals share a critic. Defaults are those of AES-RL's code."""

    population: Count = 10
    episodes: Count = 1
    seeds: Literal["common", "fresh"] = "fresh"
    sigma: Positive = 1e-3**0.5
    """Standard deviation of weights at the start (a variance of 1e-3)."""
    critic_ratio: Positive | None = 1.0
    """Gradient steps of the critic for each environment step that counts; null: as many as time allows."""
    actor_ratio: Positive = 1.0
    """Gradient steps of a trained individual for each environment step of the last ``population`` episodes."""
    warm_up_actions: WarmUpActions = "uniform"
    """Actions until gradient steps begin: random, before the search, or of individuals, of which the search learns; or
    the individuals' own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_ratio is None and self.critic_order != "beside":
            raise BadRequest("null is for a critic that learns beside the actors", "critic_ratio")

    @property
    @abstractmethod
    def critic_order(self) -> CriticOrder:
        """When the critic learns."""

    @property
    def follows_arrival(self) -> bool:
        return self.critic_order == "beside"

    @property
    def critic_worker(self) -> CriticWorker | None:
        """The keys of a critic that learns beside the actors; None if it learns in turn with them."""
        return None

    @abstractmethod
    def critic_steps(self, played: int) -> int:
        """Gradient steps of the critic in a job, for each target policy; ``played``: environment steps of the last
        ``population`` lives."""

    @property
    def trained_in_one_job(self) -> int:
        """Individuals that one job trains."""
        return 1

    def episodes_of(self, role: str) -> int:
        """Episodes that an individual of this role plays."""
        return self.episodes


@dataclass(frozen=True, kw_only=True)
class CriticWorker:
    """Keys of a critic that learns beside the actors."""

    critic_job: Count = 1000
    """Gradient steps of the critic in one job."""
    critics: Count = 1
    """Critics that learn independently, each ``critic_ratio`` steps; trained individuals take turns."""
    max_critic_lag: Count | None = None
    """Start no episode while a critic is more environment steps behind; null: no bound."""


@dataclass(frozen=True, kw_only=True)
class SteadyStateEvolution(SharedCriticEvolution, CriticWorker):
    """Keys of the searches that propose one individual at a time."""

    population: Count = 10
    """Last individuals, whose lengths are the gradient steps of a trained one."""
    slots: Count | None = 5
    """Individuals, and evaluations of the mean, at once: actor workers."""
    trained_share: Fraction = 0.5
    """Share of individuals to train."""
    share_gain: NonNegative = 50.0
    """How sharply the share is controlled: p = 1/2 - gain (share so far - trained_share)."""
    compares: ClassVar[bool] = False
    """Whether each individual is compared with the mean, which plays after it."""

    @property
    def asynchronous(self) -> bool:
        return True

    @property
    def critic_order(self) -> CriticOrder:
        return "beside"

    @property
    def critic_worker(self) -> CriticWorker:
        return self

    def critic_steps(self, played: int) -> int:
        return self.critic_job


@dataclass(frozen=True, kw_only=True)
class MeanComparing(SteadyStateEvolution):
    """Keys of the searches that compare each individual with the mean."""

    compares: ClassVar[bool] = True
    mean_episodes: Count = 5
    """Episodes of each evaluation of the mean; they are neither counted nor learned from."""
    sigma_min: NonNegative = 1e-5**0.5
    """Least standard deviation of weights (a variance of 1e-5)."""

    def episodes_of(self, role: str) -> int:
        return self.mean_episodes if role == MEAN else self.episodes


def training_probability(trained_count: int, evolved_count: int, share: float, gain: float) -> float:
    """The probability that the next individual is trained, after so many of both kinds (each counted from 1)."""
    if share in (0.0, 1.0):  # no control: it allows for exceptions
        return share
    return min(max(0.5 - gain * (trained_count / (trained_count + evolved_count) - share), 0.0), 1.0)


class SharedCriticEvolver(Evolver, Protocol):
    """An evolver whose individuals share a critic, as the loop sees it."""

    mean: Coordinates
    """The middle of its distribution [D], the policy that a run is judged by."""
    variance: Coordinates

    def ask(self, limit: int | None = None, train: bool = False) -> list[Individual]:
        """As of every evolver. ``train``: whether individuals to train may be proposed, since a critic has learned."""
        ...


SAVED = ("mean", "variance", "generation", "next_id", "counts")  # what a checkpoint holds as it is


class SteadyState(ABC):
    """A diagonal Gaussian N(mean, diag(variance)) [G + D] that learns from one individual at a time.

    Its population is the last ``hyper.population`` individuals that did not fail. A birth counts the individuals that
    it has learned from.
    """

    def __init__(self, hyper: SteadyStateEvolution, space: Space, seed: int) -> None:
        self._hyper, self.space, self.seed = hyper, space, seed
        self.mean = initial_vector(space, seeds.generator(seed, "start"), 0)
        self.variance = np.full(space.size, hyper.sigma**2)
        self.population: Sequence[Evaluation] = []
        self.generation = 0  # individuals learned from
        self.next_id = 0
        self.counts = {TRAINED: 1, EVOLVED: 1}  # individuals of each role proposed since training began, plus 1
        self.waiting: list[Evaluation] = []  # individuals whose mean was not asked for
        self.compared: dict[int, Evaluation] = {}  # individuals by the id of their mean, which plays
        self._out: set[int] = set()

    @property
    def due(self) -> Set[int]:
        return self._out

    def ask(self, limit: int | None = None, train: bool = False) -> list[Individual]:
        proposals = [self._next(train) for _ in range(1 if limit is None else limit)]
        self._out.update(individual.id for individual in proposals)
        return proposals

    def _next(self, train: bool) -> Individual:
        number, self.next_id = self.next_id, self.next_id + 1
        if self.waiting:
            evaluation = self.waiting.pop(0)
            self.compared[number] = evaluation
            return self._individual(number, self.mean, MEAN, parents=(evaluation.individual.id,))
        generator = seeds.generator(self.seed, "propose", number)
        x = self.mean + np.sqrt(self.variance) * generator.standard_normal(self.space.size)
        return self._individual(number, x, self._role(generator) if train else EVOLVED)

    def _individual(self, number: int, x: Coordinates, role: str, parents: tuple[int, ...] = ()) -> Individual:
        genes, weights = self.space.individual(x)
        return Individual(number, genes, weights, parents, self.generation, role)

    def _role(self, generator: np.random.Generator) -> str:
        h, n = self._hyper, self.counts
        p = training_probability(n[TRAINED], n[EVOLVED], h.trained_share, h.share_gain)
        role = TRAINED if generator.random() < p else EVOLVED
        n[role] += 1
        return role

    def tell(self, evaluations: Sequence[Evaluation]) -> Metrics:
        check_due(evaluations, self.due)
        self._out -= {evaluation.individual.id for evaluation in evaluations}
        metrics: Metrics = {}
        for evaluation in evaluations:
            if evaluation.individual.role == MEAN:
                metrics = self._learn(self.compared.pop(evaluation.individual.id), float(fitness([evaluation])[0]))
            elif self._hyper.compares and not failed(objectives([evaluation]))[0]:
                self.waiting.append(evaluation)
            else:
                metrics = self._learn(evaluation, np.nan)
        return metrics

    def _learn(self, evaluation: Evaluation, mean_fitness: float) -> Metrics:
        if not failed(objectives([evaluation]))[0]:
            self.population = [*self.population, evaluation][-self._hyper.population :]
        x = self.space.vector(evaluation.individual.genes, evaluation.individual.weights)
        metrics = self.update(x, float(fitness([evaluation])[0]), mean_fitness)
        metrics["population/staleness"] = self.generation - evaluation.individual.birth
        self.generation += 1
        return metrics | {"population/sigma": float(np.sqrt(self.variance).mean())}

    @abstractmethod
    def update(self, x: Coordinates, f: float, mean_fitness: float) -> Metrics:
        """Learn from an individual [G + D] of fitness f (-inf: failed), beside the mean's; change mean and variance."""

    def state_dict(self) -> StateDict:
        return {
            **saved(self, SAVED), "population": pack_evaluations(self.population),
            "waiting": pack_evaluations(self.waiting), "out": sorted(self._out),
            "compared": {"id": list(self.compared), "individuals": pack_evaluations(list(self.compared.values()))},
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        restore(self, SAVED, state)
        self.population, self.waiting = unpack_evaluations(state["population"]), unpack_evaluations(state["waiting"])
        self._out = set(state["out"])
        compared: dict[str, Any] = state["compared"]
        self.compared = dict(zip(compared["id"], unpack_evaluations(compared["individuals"]), strict=True))

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        """Individuals in flight are dropped."""
        fresh = np.full(self.space.size, self._hyper.sigma**2)
        none = pack_evaluations([])
        return {
            **state, "mean": move.place(state["mean"]), "variance": move.scaled(state["variance"], 2, fresh),
            "population": move.evaluations(state["population"]), "waiting": none, "out": [],
            "compared": {"id": [], "individuals": none},
        }  # fmt: skip
