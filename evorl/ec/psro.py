"""Policy-space response oracles: policies that answer a mixture of all policies before them.

Lanctot et al. 2017, A unified game-theoretic approach to multiagent reinforcement learning, arXiv 1711.00832,
algorithm 1. An *epoch* trains oracles against the meta-strategy over the policies that there are, lets each new policy
play all others, and solves the empirical game, whose payoffs are what they earned. The game has two sides, and what
one side wins the other loses. Letters in shapes: S policies, K oracles of an epoch.

An oracle learns on both sides and answers the mixtures of both at once, so there is a single population. Where sides
are unlike it has to observe which one it has (``mdp.tell_side``). Who is good on one side may be bad on the other: the
empirical game is that of side 0 against side 1, and its meta-strategy is a mixture for each side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from evorl.ec.core import (
    Evaluation,
    IndependentEvolution,
    Individual,
    Metrics,
    check_due,
    pack,
    pack_evaluations,
    unpack,
    unpack_evaluations,
)
from evorl.ec.matchmaking import acting, bounded
from evorl.ec.opposing import Match
from evorl.ec.space import Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import fitness
from evorl.ops.payoffs import MetaSolver, meta_strategy, nash_conv, two_sided
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.saved import restore, saved
from evorl.util.types import Count, StateDict

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PSRO(IndependentEvolution):
    """Oracles, the games that give the payoffs, and how the empirical game is solved."""

    population: Count = 1
    """Oracles of an epoch, each of which becomes a policy of the empirical game."""
    slots: Count | None = None
    """Evaluations in flight: oracles, and shares of their matches; null is the number of oracles."""
    lifetime: Literal["play", "train"] = "train"
    train_steps: Count = 100_000
    """Environment steps that an oracle learns for, against the meta-strategy."""
    inherit_optimizer: bool = True
    meta_solver: MetaSolver = "nash"
    """The meta-strategy of an empirical game; prd: projected replicator dynamics."""
    games: Annotated[int, Meta(ge=2)] = 200
    """Games of each pair of policies, which give its payoffs; half of them on either side."""
    anew: bool = False
    """Whether an oracle begins with a policy that has learned nothing, and not where the last one ended."""
    symmetric: bool = False
    """Whether the sides are alike: then payoffs are means over both seats, and both sides have the same mixture."""
    opponents: Count = 32
    """Opponents of an oracle on either side; where there are more, they are drawn by their probabilities."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lifetime == "play":
            raise BadRequest("oracles learn; take lifetime=train", "lifetime")
        if self.asynchronous:
            raise BadRequest(
                "an epoch waits for all of its oracles and matches; take asynchronous=false", "asynchronous"
            )
        if self.games % 2:
            raise BadRequest(f"must be even, as each policy of a pair plays each side: {self.games}", "games")

    @property
    def opposes(self) -> bool:
        return True

    @property
    def sides(self) -> int | None:
        return 2

    @property
    def zero_sum(self) -> bool:
        return True

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


SAVED = ("generation", "gain", "told", "next_id")  # what a checkpoint holds as it is


class Strategy:
    """The policies, what they earn against each other, and the meta-strategy.

    Policy k is player k. An individual that is due is an oracle, or a match of a new policy with some others. The first
    oracles have nobody to answer but themselves.
    """

    ranked_by: ClassVar[str] = "share of the mixtures"

    def __init__(self, hyper: PSRO, space: Space, seed: int) -> None:
        self.hyper, self.space, self.seed = hyper, space, seed
        self.policies: list[Evaluation] = []  # those of the game that was solved last, then those that are new
        self.payoff = np.zeros((0, 0))  # [S, S] what the policy of a row earns on side 0 from that of a column
        self.mixtures = np.zeros((2, 0))  # [2, S] the meta-strategy
        self.gain = float("nan")  # what the newest oracles earn more than the mixtures that they answer
        self.learners: list[Individual | None] = [None] * hyper.population  # where each oracle goes on
        self.generation = self.told = self.next_id = 0
        self._arrived: list[Evaluation] = []
        self._matches: dict[int, list[int]] = {}  # of each individual that is a match: its policy, and the others
        self._ask_oracles()

    def _ask_oracles(self) -> None:
        self._matches = {}
        self._queue = self._oracles()
        self._asked = {individual.id for individual in self._queue}

    @property
    def population(self) -> Sequence[Evaluation]:
        """The policies of the game that was solved last."""
        return self.policies[: self.mixtures.shape[1]]

    @property
    def kept(self) -> Sequence[Individual]:
        """The same as individuals."""
        return [policy.individual for policy in self.population]

    @property
    def arrived(self) -> Sequence[Evaluation]:
        """The evaluations of this generation that have arrived."""
        return self._arrived

    @property
    def due(self) -> Set[int]:
        arrived = {evaluation.individual.id for evaluation in self._arrived}
        return self._asked - arrived - {individual.id for individual in self._queue}

    def ask(self, limit: int | None = None) -> list[Individual]:
        take = len(self._queue) if limit is None else limit
        proposals, self._queue = self._queue[:take], self._queue[take:]
        return proposals

    def tell(self, evaluations: Sequence[Evaluation]) -> Metrics:
        check_due(evaluations, self.due)
        self.told += len(evaluations)
        self._arrived = sorted([*self._arrived, *evaluations], key=lambda evaluation: evaluation.individual.id)
        if len(self._arrived) < len(self._asked):
            return {}
        arrived, self._arrived = self._arrived, []
        if self._matches:
            self._fill(arrived)
        elif self._add(arrived):
            self._ask_matches()
            return {}
        metrics = self._solve() if self.policies else {}
        self._ask_oracles()
        return metrics

    def opponents(self, individual: int) -> list[Match]:
        """Of an oracle: the meta-strategy of the side that it does not have. Of a match: everybody who plays."""
        if individual in self._matches:
            players = sorted({*self._matches[individual]})
            return [Match(k, 1 / len(players), self.policies[k].individual) for k in players]
        if not self.mixtures.size:
            return [Match(0, 1.0, None)]
        draw = float(seeds.generator(self.seed, "opponents", individual).random())
        first, second = (
            bounded({k: x for k, x in enumerate(mixture.tolist()) if x > 0}, self.hyper.opponents, draw)
            for mixture in self.mixtures
        )
        each = {k: (second.get(k, 0.0), first.get(k, 0.0)) for k in sorted({*first, *second})}
        return [Match(k, sum(chances) / 2, self.policies[k].individual, chances) for k, chances in each.items()]

    def about(self, individual: int) -> dict[str, Any]:
        return {}

    @property
    def leader(self) -> Evaluation | None:
        """The policy with the largest share of the meta-strategy, of equals the newest one."""
        share = self.mixtures.mean(0)
        return self.policies[int(np.flatnonzero(share >= share.max() - 1e-9)[-1])] if self.generation else None

    def score(self, evaluation: Evaluation) -> float:
        """The share of a policy in the meta-strategy, mean over the sides."""
        ids = [policy.individual.id for policy in self.policies]
        return float(self.mixtures[:, ids.index(evaluation.individual.id)].mean())

    # -------------------------------------------------------------- oracles

    def _oracles(self) -> list[Individual]:
        """The oracles of an epoch. Each continues from the last oracle of its place, with genes of its own."""
        first, role = self.next_id, "oracle" if self.policies else "initial"
        self.next_id += len(self.learners)
        genes = self.space.begin(seeds.generator(self.seed, "oracles", first), first, len(self.learners))
        oracles = []
        for number, own, drawn in zip(range(first, self.next_id), self.learners, genes, strict=True):
            oracle = Individual(number, drawn, birth=self.told, role=role)
            if own is None or self.hyper.anew:
                oracles.append(oracle._replace(weights=self.space.weights_of(number)))
            else:
                oracles.append(oracle._replace(weights=own.weights, memory=own.memory, parents=(own.id,)))
        return oracles

    def _add(self, oracles: Sequence[Evaluation]) -> bool:
        """Add the oracles that did not fail to the policies; the others begin anew. Returns whether there are any."""
        learned = np.isfinite(fitness(oracles)).tolist()
        for place, (oracle, fine) in enumerate(zip(oracles, learned, strict=True)):
            individual, policy, _ = acting(oracle.individual)
            self.learners[place] = individual if fine else None
            if fine:
                self.policies.append(oracle._replace(individual=policy))
        return any(learned)

    # -------------------------------------------------------------- matches

    def _ask_matches(self) -> None:
        """Let every policy without payoffs play all up to itself, in shares for the slots."""
        first, end = len(self.payoff), len(self.policies)
        parts = ceil((self.hyper.slots or self.hyper.population) / (end - first))
        self._queue = [
            self._match(own, share.tolist())
            for own in range(first, end)
            for share in np.array_split(np.arange(own + 1), min(parts, own + 1))
        ]
        self._asked = {individual.id for individual in self._queue}

    def _match(self, own: int, others: Sequence[int]) -> Individual:
        number, policy = self.next_id, self.policies[own].individual
        self.next_id += 1
        self._matches[number] = [own, *others]
        # one key for all: the luck of common episodes adds the same to all payoffs, which changes no equilibrium
        key = seeds.key(self.seed, "match") >> 33
        match = {"player": own, "others": [*others], "games": self.hyper.games, "key": key}
        return Individual(number, policy.genes, None, (policy.id,), self.told, "match", {"match": match})

    def _fill(self, matches: Sequence[Evaluation]) -> None:
        """Write what was earned into the table. New policies of which a match failed leave."""
        old, new = len(self.payoff), len(self.policies)
        payoff = np.zeros((new, new))
        payoff[:old, :old] = self.payoff
        failed = set()
        for match in matches:
            own, *others = self._matches[match.individual.id]
            games = (match.individual.memory or {}).get("games")
            if games is None:
                failed.add(own)
                continue
            for k, (first, second) in zip(others, games["earned"], strict=True):
                payoff[own, k], payoff[k, own] = first, -second
                if k == own:
                    payoff[k, k] = (first - second) / 2
        failed_ids = {self.policies[k].individual.id for k in failed}
        self.learners = [None if own is None or own.id in failed_ids else own for own in self.learners]
        stays = [k for k in range(new) if k not in failed]
        self.policies = [self.policies[k] for k in stays]
        self.payoff = payoff[np.ix_(stays, stays)]

    # -------------------------------------------------------------- the empirical game

    @property
    def game(self) -> Array:
        """The payoffs [S, S] of side 0; antisymmetric if the sides are alike."""
        return (self.payoff - self.payoff.T) / 2 if self.hyper.symmetric else self.payoff

    def _solve(self) -> Metrics:
        game, (p, q), old = self.game, self.mixtures, self.mixtures.shape[1]
        if 0 < old < len(game):
            self.gain = float((game[old:, :old] @ q).max() - (p @ game[:old, old:]).min())
        self.mixtures = np.stack(meta_strategy(game, self.hyper.meta_solver))
        self.generation += 1
        p, q = self.mixtures
        return {
            "league/snapshots": float(len(self.policies)), "league/value": float(p @ game @ q),
            "league/gain": self.gain, "league/regret": nash_conv(two_sided(game), (p, q)),
        }  # fmt: skip

    def table(self) -> dict[str, Any]:
        p, q = self.mixtures
        return {
            "epoch": self.generation, "policies": [policy.individual.id for policy in self.policies],
            "payoff": self.game.tolist(), "mixtures": self.mixtures.tolist(), "value": float(p @ self.game @ q),
            "gain": self.gain,
        }  # fmt: skip

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {
            "policies": pack_evaluations(self.policies),
            "learners": pack([own for own in self.learners if own is not None]),
            "places": [place for place, own in enumerate(self.learners) if own is not None],
            "payoff": self.payoff.copy(), "mixtures": self.mixtures.copy(), **saved(self, SAVED),
            "queue": pack(self._queue), "asked": sorted(self._asked), "arrived": pack_evaluations(self._arrived),
            "matches": {str(number): list(players) for number, players in self._matches.items()},
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policies = unpack_evaluations(state["policies"])
        self.learners = [None] * self.hyper.population
        for place, own in zip(state["places"], unpack(state["learners"]), strict=True):
            self.learners[place] = own
        self.payoff, self.mixtures = (np.array(state[name], np.float64) for name in ("payoff", "mixtures"))
        restore(self, SAVED, state)
        self._queue, self._asked = unpack(state["queue"]), {int(i) for i in state["asked"]}
        self._arrived = unpack_evaluations(state["arrived"])
        self._matches = {int(number): [*players] for number, players in state["matches"].items()}

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        moved = {name: move.evaluations(state[name]) for name in ("policies", "arrived")}
        return {**state, **moved, **{name: move.individuals(state[name]) for name in ("queue", "learners")}}
