"""Population based training (Jaderberg et al. 2017, arXiv 1711.09846), asynchronous by default.

Every member trains for a while, then is *ready*. It continues as it is, or it copies (exploits) the weights and genes
of a better member and changes (explores) the genes. As in Lamarckian (Bai et al. 2022), the worst members are replaced
first (truncation); the others compare themselves with a random rival by a test over their episodes. Beyond both: a
failed member is never a parent, and integers and choices may evolve too.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import ceil, copysign
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import (
    Evaluation,
    IndependentEvolution,
    Individual,
    Metrics,
    Objective,
    check_due,
    objective_weights,
    pack,
    pack_evaluations,
    unpack,
    unpack_evaluations,
)
from evorl.ec.matchmaking import Policies, acting
from evorl.ec.opposing import Match
from evorl.ec.space import Coordinates, Gene, Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import fitness
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.saved import restore, saved
from evorl.util.types import Fraction, Natural, Positive, StateDict


@dataclass(frozen=True, kw_only=True)
class PBT(IndependentEvolution):
    """Truncation, the t-test, perturbation and resampling of genes, for members whose learners continue."""

    lifetime: Literal["play", "train"] = "train"
    asynchronous: bool = True
    exploit: Literal["both", "truncation", "ttest", "none"] = "both"
    """A ready member copies a pioneer if it is one of the worst, a significantly better rival, or both (Lamarckian)."""
    worst: Fraction = 0.2
    """Share of members that truncation replaces, rounded up (the paper's section 4.1.1: 20 %)."""
    pioneers: Fraction = 0.2
    """Share of members that it copies from, rounded up (the same section)."""
    significance: Positive = 0.05
    """Of Welch's t-test between the episodes of two members (section 4.1.1)."""
    factors: tuple[Positive, Positive] = (0.8, 1.2)
    """What perturbing multiplies a gene by, either one (section 4.1.1)."""
    resample: Fraction = 0.25
    """Probability that a gene is drawn anew rather than perturbed (Ray Tune's default; the paper does one or other)."""
    warm_up: Natural = 1
    """Evaluations of every member before any member copies another."""
    opponents: Literal["world", "population"] = "world"
    """Who plays the other sides while a member trains: whom the world has, or the present policies of all members."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slots is not None and self.slots > self.population:
            raise BadRequest(f"{self.slots} is more than the population, whose members train one at a time", "slots")

        if self.opposes and self.lifetime == "play":
            raise BadRequest("the population plays while a member trains; take lifetime=train", "opponents")

    @property
    def opposes(self) -> bool:
        return self.opponents == "population"

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


SAVED = ("rounds", "told", "exploits", "next_id")  # what a checkpoint holds as it is


class Strategy:
    """N members, each of them ready or in flight."""

    def __init__(self, hyper: PBT, space: Space, seed: int) -> None:
        self.hyper, self.space, self.seed = hyper, space, seed
        self.members: list[Evaluation | None] = [None] * hyper.population
        self.rounds = [0] * hyper.population  # evaluations of each member
        self.told = 0
        self.exploits = 0
        genes = space.begin(seeds.generator(seed, "initial"), 0, hyper.population)
        self._queue = [Individual(i, genes[i], space.weights_of(i), role="initial") for i in range(hyper.population)]
        self._member = {i: i for i in range(hyper.population)}  # the member of each id that is not told yet
        self._ready: list[int] = []
        self.next_id = hyper.population
        # member k is player k, who began with policy k, and individual i has learned policy N + i
        self.policies = Policies({individual.id: individual for individual in self._queue} if hyper.opposes else {})
        self.playing = [*range(hyper.population)]  # the policy of each member
        for individual in self._queue:
            self._meet(individual.id)

    def opponents(self, individual: int) -> list[Match]:
        """The opponents of an individual in flight; they stay the same until `tell` receives its evaluation."""
        return self.policies.opponents(individual, self._member[individual])

    def about(self, individual: int) -> dict[str, Any]:
        return {}

    def _meet(self, individual: int) -> None:
        """Choose the opponents of an individual: the present policies of those it plays, each as likely."""
        if self.hyper.opposes:
            met = self.met(self._member[individual])
            self.policies.matches[individual] = [(k, self.playing[k], 1 / len(met)) for k in met]

    def met(self, member: int) -> Sequence[int]:
        """The members that a member plays against; it may be among them itself."""
        return range(self.hyper.population)

    def compared(self, member: int) -> Sequence[int]:
        """The members that a member may copy, itself among them."""
        return range(self.hyper.population)

    def begins_as(self, member: int, individual: int) -> int:
        """The number whose initial weights an individual takes with which a member begins anew."""
        return individual

    @property
    def population(self) -> Sequence[Evaluation]:
        """The members that did not fail."""
        return sound(self.members)

    @property
    def generation(self) -> int:
        """Evaluations that every member has had."""
        return min(self.rounds)

    @property
    def due(self) -> Set[int]:
        return self._member.keys() - {waiting.id for waiting in self._queue}

    def ask(self, limit: int | None = None) -> list[Individual]:
        while self._ready and (limit is None or len(self._queue) < limit):
            self._queue.append(self._successor(self._ready.pop(0)))
        take = len(self._queue) if limit is None else limit
        proposals, self._queue = self._queue[:take], self._queue[take:]
        return proposals

    def tell(self, evaluations: Sequence[Evaluation]) -> Metrics:
        check_due(evaluations, self.due)
        for evaluation in evaluations:
            member = self._member.pop(evaluation.individual.id)
            self.members[member] = self._learned(member, evaluation) if self.hyper.opposes else evaluation
            self.rounds[member] += 1
            self.told += 1
            self._ready.append(member)
        if not self.hyper.asynchronous and not self._member:  # a whole round: all decide on the same population
            self._queue = [self._successor(member) for member in range(self.hyper.population)]
            self._ready = []
        elif not self.hyper.asynchronous:
            self._ready = []
        self.policies.forget(self.playing)
        return {"population/exploits": float(self.exploits)}

    def _learned(self, member: int, evaluation: Evaluation) -> Evaluation:
        """Take over the policy of a member, unless it failed. Returns the evaluation without what is of its games."""
        individual, policy, _ = acting(evaluation.individual)
        del self.policies.matches[individual.id]
        if np.isfinite(fitness([evaluation])[0]):
            self.playing[member] = self.hyper.population + individual.id
            self.policies.by_number[self.playing[member]] = policy
        return evaluation._replace(individual=individual)

    # -------------------------------------------------------------- a ready member

    def _successor(self, member: int) -> Individual:
        """The individual that a ready member continues as."""
        draw = seeds.generator(self.seed, "successor", self.next_id)
        own = self.members[member]
        assert own is not None
        parent = self._exploit(member, own, draw)
        if parent is None:  # all members failed
            genes = self.space.begin(draw, self.next_id)[0]
            child = self._child(genes, (), "initial")
            child = child._replace(weights=self.space.weights_of(self.begins_as(member, child.id)))
        else:
            changed = parent is not own
            self.exploits += changed
            source = parent.individual
            genes = explore(source.genes, self.space, self.hyper, draw) if changed else source.genes
            child = self._child(genes, (source.id,), "exploited" if changed else "goes on")
            child = child._replace(weights=source.weights, memory=source.memory)
        self._member[child.id] = member
        self._meet(child.id)
        return child

    def _child(self, genes: Coordinates, parents: tuple[int, ...], role: str) -> Individual:
        self.next_id += 1
        return Individual(self.next_id - 1, genes, parents=parents, birth=self.told, role=role)

    def _exploit(self, member: int, own: Evaluation, draw: np.random.Generator) -> Evaluation | None:
        """The member to continue from, usually the ready one itself. None where all have failed."""
        h, population = self.hyper, self._in_turn(member)
        if not population:
            return None
        failed = not any(own is other for other in population)
        if not failed and (min(self.rounds) < h.warm_up or len(population) < 2):
            return own
        if failed:
            return pioneer(population, h.pioneers, draw)
        if h.exploit in ("both", "truncation") and among_worst(own, population, h.worst):
            best = pioneer(population, h.pioneers, draw)
            return best if fitness([best])[0] > fitness([own])[0] else own
        if h.exploit in ("both", "ttest"):
            others = [other for other in population if other is not own]
            rival = others[draw.integers(len(others))]
            if fitness([rival])[0] > fitness([own])[0] and welch(rival, own, h.objectives[0]) < h.significance:
                return rival
        return own

    def _in_turn(self, member: int) -> list[Evaluation]:
        """The members that a member may copy and that did not fail, in a random order drawn once per round.

        The order breaks ties among equals, the same way for all decisions of a round."""
        order = seeds.generator(self.seed, "order", self.generation).permutation(len(self.members))
        return sound([self.members[i] for i in order if i in self.compared(member)])

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {
            "members": [member for member, evaluation in enumerate(self.members) if evaluation is not None],
            "population": pack_evaluations([evaluation for evaluation in self.members if evaluation is not None]),
            **saved(self, SAVED),
            "queue": pack(self._queue),
            "member": {str(i): member for i, member in self._member.items()},
            "ready": list(self._ready),
            **({"playing": list(self.playing), **self.policies.state_dict()} if self.hyper.opposes else {}),
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        self.members = [None] * self.hyper.population
        for member, evaluation in zip(state["members"], unpack_evaluations(state["population"]), strict=True):
            self.members[member] = evaluation
        restore(self, SAVED, state)
        self._queue = unpack(state["queue"])
        self._member = {int(i): member for i, member in state["member"].items()}
        self._ready = list(state["ready"])
        if self.hyper.opposes:
            self.playing = list(state["playing"])
            self.policies.load_state_dict(state)

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        names = ("queue", "policies") if self.hyper.opposes else ("queue",)
        moved = {name: move.individuals(state[name]) for name in names}
        return {**state, "population": move.evaluations(state["population"]), **moved}


def sound(members: Sequence[Evaluation | None]) -> list[Evaluation]:
    """The members with an evaluation that did not fail, in order."""
    present = [member for member in members if member is not None]
    return [present[i] for i in np.flatnonzero(np.isfinite(fitness(present)))] if present else []


def portion(share: float, n: int) -> int:
    """Number of members in a share of n, rounded up: 1 of 4 for 0.2."""
    return ceil(round(share * n, 9))  # 0.28 of 25 are 7, whatever floats say


def among_worst(own: Evaluation, population: Sequence[Evaluation], share: float) -> bool:
    """Section 4.1.1, truncation: whether fewer than a share of the members are worse; of equals, the first are."""
    worst = np.argsort(fitness(population), kind="stable")[: portion(share, len(population))]
    return any(population[i] is own for i in worst)


def pioneer(population: Sequence[Evaluation], share: float, draw: np.random.Generator) -> Evaluation:
    """One of the best, drawn evenly; of equals that are not all among them, the first are."""
    count = max(1, portion(share, len(population)))
    best = np.argsort(-fitness(population), kind="stable")[:count]
    return population[int(draw.choice(best))]


def outcomes(evaluation: Evaluation, objective: Objective) -> NDArray[np.float64]:
    """The value of an objective in each episode [E]; empty where it is not known."""
    parts = [
        weight * np.asarray(evaluation.result.get(name, ()), np.float64)
        for name, weight in objective_weights(objective).items()
    ]
    alike = len({len(part) for part in parts}) == 1
    return np.asarray(sum(parts)) if alike else np.empty(0)


def welch(a: Evaluation, b: Evaluation, objective: Objective) -> float:
    """The p-value of Welch's t-test (1947) that two members' episodes have the same mean objective; 1 if unknown."""
    from scipy.special import stdtr

    x, y = outcomes(a, objective), outcomes(b, objective)
    if min(len(x), len(y)) < 2:
        return 1.0
    u, v = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    if u + v == 0:
        return float(x.mean() == y.mean())
    t = (x.mean() - y.mean()) / np.sqrt(u + v)
    freedom = (u + v) ** 2 / (u**2 / (len(x) - 1) + v**2 / (len(y) - 1))
    return float(2 * stdtr(freedom, -abs(t)))


def explore(genes: Coordinates, space: Space, hyper: PBT, draw: np.random.Generator) -> Coordinates:
    """Every gene multiplied by one of two factors, or drawn anew; within its bounds."""
    fresh = space.sample(draw, 1)[0]
    anew = draw.random(len(genes)) < hyper.resample
    up = draw.random(len(genes)) < 0.5
    changed = [
        perturbed(gene, x, hyper.factors[int(higher)], higher)
        for gene, x, higher in zip(space.genes, genes.tolist(), up.tolist(), strict=True)
    ]
    return space.clip(np.where(anew, fresh, changed))


def perturbed(gene: Gene, coordinate: float, factor: float, up: bool) -> float:
    """The coordinate of a value times the factor; a choice moves to its neighbour, an integer by one at least."""
    if gene.choices:
        return min(max(round(coordinate), 0), len(gene.choices) - 1) + (1.0 if up else -1.0)
    value = float(gene.value(coordinate))
    if not gene.integer:
        return gene.coordinate(value * factor)
    shift = value * factor - value
    return gene.coordinate(value + (round(shift) or copysign(1.0, shift or (1.0 if up else -1.0))))
