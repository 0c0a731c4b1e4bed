"""A league: learners whose opponents are each other and snapshots of each other.

Vinyals et al. 2019, Grandmaster level in StarCraft II using multi-agent reinforcement learning, Methods. Main agents
become strong against everybody. Main exploiters look for weaknesses of the main agents, and league exploiters for those
of the whole league; they are reset when they have found some. Every agent learns for ``train_steps`` at a time, a
*slice*, whose opponents are chosen before it. Where the pseudocode resets the weights of an exploiter before it takes
the snapshot, the snapshot is taken first here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

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
from evorl.ec.matchmaking import Payoffs, Player, Policies, Role, Shares, acting, bounded, matches
from evorl.ec.opposing import Match
from evorl.ec.space import Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import fitness
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.saved import restore, saved
from evorl.util.types import Count, Fraction, Natural, StateDict


@dataclass(frozen=True, kw_only=True)
class League(IndependentEvolution):
    """Agents of three roles, their snapshots, and when an agent becomes one."""

    population: Count = 4
    """Agents that learn: main agents, and the exploiters below (AlphaStar has 1, 1 and 2 for each of three races)."""
    lifetime: Literal["play", "train"] = "train"
    train_steps: Count = 250_000
    """Environment steps of learning in each slice, whose opponents stay the same."""
    inherit_optimizer: bool = True
    main_exploiters: Natural = 1
    """Agents that play the main agents."""
    league_exploiters: Natural = 2
    """Agents that play all snapshots."""
    itself: Fraction = 0.35
    """Share of a main agent's games against main agents, itself among them (Methods: 35 %)."""
    forgotten: Fraction = 0.15
    """Share of its games against snapshots that it should beat and does not (15 %); the others are against all."""
    snapshot: Count = 1_000_000
    """Environment steps of learning after which an agent may become a snapshot (Methods: 2e9)."""
    promote: Fraction = 0.7
    """It does where its score against each of its opponents is higher (Methods: 70 %)."""
    longest: Count = 2_000_000
    """Environment steps of learning after which it does whatever its scores are (pseudocode: twice the other)."""
    reset: Fraction = 0.25
    """Probability that a league exploiter begins anew after its snapshot (Methods: 25 %); main exploiters always do."""
    opponents: Count = 16
    """Opponents of a slice; where there are more, they are drawn by their probabilities."""
    decay: Fraction = 0.99
    """What a game keeps of its weight in a pair's score with each further one (pseudocode)."""
    capacity: Count = 200
    """Snapshots in the league; the oldest leaves first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lifetime == "play":
            raise BadRequest("the agents of a league learn; take lifetime=train", "lifetime")
        if self.population <= self.main_exploiters + self.league_exploiters:
            raise BadRequest(
                f"leaves no main agent beside {self.main_exploiters} + {self.league_exploiters} exploiters",
                "population",
            )
        if self.slots is not None and self.slots > self.population:
            raise BadRequest(f"{self.slots} is more than the population, whose agents learn one at a time", "slots")
        if self.itself + self.forgotten > 1:
            raise BadRequest("itself and forgotten are more than all games", "forgotten")

    @property
    def opposes(self) -> bool:
        return True

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)

    @property
    def roles(self) -> list[Role]:
        """The role of each agent."""
        mains = self.population - self.main_exploiters - self.league_exploiters
        counts: dict[Role, int] = {
            "main": mains, "main exploiter": self.main_exploiters, "league exploiter": self.league_exploiters
        }  # fmt: skip
        return [role for role, count in counts.items() for _ in range(count)]


SAVED = ("rounds", "learned", "told", "resets", "next_player", "next_id")  # what a checkpoint holds as it is


class Strategy:
    """The agents and their snapshots. Agent k is player k, with the policy that it had after its last slice."""

    ranked_by: ClassVar[str] = "score in the league"

    def __init__(self, hyper: League, space: Space, seed: int) -> None:
        self.hyper, self.space, self.seed = hyper, space, seed
        n = hyper.population
        self.members: list[Evaluation | None] = [None] * n  # the last slice of each agent that did not fail
        self.rounds, self.learned = [0] * n, [0] * n  # slices of each agent, and its steps since its last snapshot
        self.told = self.resets = 0
        genes = space.begin(seeds.generator(seed, "initial"), 0, n)
        self._queue = [Individual(i, genes[i], space.weights_of(i), role="initial") for i in range(n)]
        # of all who may play: agent k begins with policy k, and individual i has learned policy n + i
        self.policies = Policies({individual.id: individual for individual in self._queue})
        self.agents = [Player(i, role, i) for i, role in enumerate(hyper.roles)]
        mains = [agent for agent in self.agents if agent.role == "main"]
        self.snapshots = [Player(n + k, "main", main.policy, k) for k, main in enumerate(mains)]  # the oldest first
        self.payoffs = Payoffs(hyper.decay)
        self.next_player, self.next_id = n + len(mains), n
        self._agent = {i: i for i in range(n)}  # the agent of each id that is not told yet
        self.policies.matches = {i: self._match(i, i) for i in range(n)}
        self._arrived: list[Evaluation] = []  # of this generation
        self._ready: list[int] = []

    @property
    def population(self) -> Sequence[Evaluation]:
        """The last slice of each agent."""
        return [member for member in self.members if member is not None]

    @property
    def generation(self) -> int:
        """Slices that every agent has learned for."""
        return min(self.rounds)

    @property
    def arrived(self) -> Sequence[Evaluation]:
        """The evaluations of this generation that have arrived."""
        return self._arrived

    @property
    def due(self) -> Set[int]:
        return self._agent.keys() - {
            individual.id for individual in (*self._queue, *(individual.individual for individual in self._arrived))
        }

    def ask(self, limit: int | None = None) -> list[Individual]:
        while self._ready and (limit is None or len(self._queue) < limit):
            self._queue.append(self._successor(self._ready.pop(0)))
        take = len(self._queue) if limit is None else limit
        proposals, self._queue = self._queue[:take], self._queue[take:]
        return proposals

    def tell(self, evaluations: Sequence[Evaluation]) -> Metrics:
        check_due(evaluations, self.due)
        self.told += len(evaluations)
        self._arrived = sorted([*self._arrived, *evaluations], key=lambda evaluation: evaluation.individual.id)
        if self.hyper.asynchronous or len(self._arrived) == self.hyper.population:
            agents = [self._learn(evaluation) for evaluation in self._arrived]
            self._arrived = []
            for own in [self.agents[agent] for agent in agents if agent is not None and self._is_due(agent)]:
                self._take_snapshot(own)
            if not self.hyper.asynchronous:  # all are chosen opponents for by the same scores
                self._queue, self._ready = [self._successor(agent) for agent in range(self.hyper.population)], []
            self.policies.forget(player.policy for player in (*self.agents, *self.snapshots))
        return self._metrics()

    def opponents(self, individual: int) -> list[Match]:
        """The opponents of an individual that is due; those of a slice stay the same."""
        return self.policies.opponents(individual, self._agent[individual])

    def about(self, individual: int) -> dict[str, Any]:
        agent = self._agent[individual]
        return {"agent": agent, "agent_role": self.agents[agent].role}

    @property
    def kept(self) -> Sequence[Individual]:
        """The snapshots."""
        return [self.policies.by_number[snapshot.policy] for snapshot in self.snapshots]

    @property
    def leader(self) -> Evaluation | None:
        """The last slice of the main agent with the highest mean score against all snapshots."""
        mains = [self.members[agent.number] for agent in self.agents if agent.role == "main"]
        return max((main for main in mains if main is not None), key=self.score, default=None)

    def score(self, evaluation: Evaluation) -> float:
        """The mean score of an agent against all snapshots; a pair that has not played counts one half."""
        return float(np.mean(self._scores(evaluation)))

    def table(self) -> dict[str, Any]:
        """Scores and faded games of each agent (rows) against all agents and snapshots (columns)."""
        players = [*self.agents, *self.snapshots]
        return {
            "generation": self.generation, "agents": [_name(agent) for agent in self.agents],
            "players": [_name(player) for player in players],
            "policies": [self._learner(player.policy) for player in players],
            "score": [[self.payoffs.score(own.number, other.number) for other in players] for own in self.agents],
            "games": [[self.payoffs.games(own.number, other.number) for other in players] for own in self.agents],
        }  # fmt: skip

    def _learner(self, policy: int) -> int | None:
        """The id of the individual that has learned a policy; None for those that agents began with."""
        return None if policy < self.hyper.population else policy - self.hyper.population

    # -------------------------------------------------------------- after a slice

    def _learn(self, evaluation: Evaluation) -> int | None:
        """Take over what an agent has learned, and count its games. Returns the agent; None if it failed."""
        agent = self._agent.pop(evaluation.individual.id)
        del self.policies.matches[evaluation.individual.id]
        self.rounds[agent] += 1
        self._ready.append(agent)
        # after a failure the agent repeats the slice from the policy before it, on other episodes
        if not np.isfinite(fitness([evaluation])[0]):
            return None
        individual, acts, games = acting(evaluation.individual)
        known = {player.number for player in (*self.agents, *self.snapshots)}
        for opponent, points in zip(games["opponents"], games["points"], strict=True):
            if int(opponent) in known and int(opponent) != agent:  # whoever wins against itself also loses
                self.payoffs.record(agent, int(opponent), float(points))
        former = self.members[agent]
        self.members[agent] = evaluation._replace(individual=individual)
        policy = individual.id + self.hyper.population
        self.policies.by_number[policy] = acts
        self.agents[agent] = self.agents[agent]._replace(policy=policy)
        self.learned[agent] += self._steps(former, individual)
        return agent

    def _steps(self, former: Evaluation | None, individual: Individual) -> int:
        """The environment steps of a slice: whole batches, so train_steps or more, which stand for those not told."""
        steps = (individual.memory or {}).get("steps")
        before = 0 if former is None else (former.individual.memory or {}).get("steps", 0)
        return self.hyper.train_steps if steps is None or steps <= before else int(steps - before)

    def _is_due(self, agent: int) -> bool:
        """Whether an agent becomes a snapshot: it beats everybody it should, or it has learned for long."""
        learned = self.learned[agent]
        if learned < self.hyper.snapshot or learned >= self.hyper.longest:
            return learned >= max(self.hyper.snapshot, self.hyper.longest)
        mains = [player for player in self.agents if player.role == "main"]
        others = mains if self.agents[agent].role == "main exploiter" else self.snapshots
        return min(self.payoffs.score(agent, other.number) for other in others) > self.hyper.promote

    def _take_snapshot(self, own: Player) -> None:
        self.snapshots.append(Player(self.next_player, own.role, own.policy, own.number))
        self.next_player += 1
        self.learned[own.number] = 0
        while len(self.snapshots) > self.hyper.capacity:
            self.payoffs.forget(self.snapshots.pop(0).number)
        draw = seeds.generator(self.seed, "reset", own.policy).random()
        if own.role == "main exploiter" or (own.role == "league exploiter" and draw < self.hyper.reset):
            self.members[own.number] = None  # its successor begins anew
            self.payoffs.forget(own.number)
            self.resets += 1

    # -------------------------------------------------------------- the next slice

    def _successor(self, agent: int) -> Individual:
        """The individual as which an agent continues, or is reset."""
        number, own = self.next_id, self.members[agent]
        self.next_id += 1
        self._agent[number], self.policies.matches[number] = agent, self._match(agent, number)
        if own is None and self.agents[agent].policy == agent:  # it has not learned yet: its first slice again
            first = self.policies.by_number[agent]
            return Individual(number, first.genes, first.weights, (), self.told, "initial")
        if own is None:  # it begins anew: the same way until a slice succeeds, after which it has another policy
            anew = self.agents[agent].policy
            genes = self.space.begin(seeds.generator(self.seed, "successor", anew), anew)[0]
            return Individual(number, genes, self.space.weights_of(anew), (), self.told, "reset")
        source = own.individual
        return Individual(number, source.genes, source.weights, (source.id,), self.told, "goes on", source.memory)

    def _match(self, agent: int, number: int) -> list[tuple[int, int, float]]:
        """The opponents of an agent's slice of this number, by its role and its scores: player, policy, chance."""
        h, players = self.hyper, {player.number: player for player in (*self.agents, *self.snapshots)}
        mixture = matches(
            self.agents[agent], [*players.values()], lambda opponent: self.payoffs.score(agent, opponent.number),
            Shares(h.itself, h.forgotten),
        )  # fmt: skip
        chosen = bounded(mixture, h.opponents, float(seeds.generator(self.seed, "opponents", number).random()))
        return [(player, players[player].policy, chance) for player, chance in chosen.items()]

    # -------------------------------------------------------------- reports

    def _scores(self, evaluation: Evaluation) -> list[float]:
        policy = evaluation.individual.id + self.hyper.population
        agent = next(own.number for own in self.agents if own.policy == policy)
        return [self.payoffs.score(agent, snapshot.number) for snapshot in self.snapshots]

    def _metrics(self) -> Metrics:
        metrics = {"league/snapshots": float(len(self.snapshots)), "league/resets": float(self.resets)}
        if (leader := self.leader) is not None:
            metrics |= {"league/score": self.score(leader), "league/score_worst": min(self._scores(leader))}
        return metrics

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {
            "members": [agent for agent, member in enumerate(self.members) if member is not None],
            "population": pack_evaluations(self.population), "arrived": pack_evaluations(self._arrived),
            "queue": pack(self._queue), **self.policies.state_dict(),
            **saved(self, SAVED), "ready": list(self._ready),
            "playing": [player.policy for player in self.agents],
            "snapshots": [[*snapshot] for snapshot in self.snapshots],
            "agent": {str(i): agent for i, agent in self._agent.items()},
            "payoffs": self.payoffs.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.members = [None] * self.hyper.population
        for agent, evaluation in zip(state["members"], unpack_evaluations(state["population"]), strict=True):
            self.members[agent] = evaluation
        self._arrived, self._queue = unpack_evaluations(state["arrived"]), unpack(state["queue"])
        self.policies.load_state_dict(state)
        restore(self, SAVED, state)
        self._ready = [*state["ready"]]
        roles = self.hyper.roles
        self.agents = [Player(i, roles[i], policy) for i, policy in enumerate(state["playing"])]
        self.snapshots = [Player(*entry) for entry in state["snapshots"]]
        self._agent = {int(i): agent for i, agent in state["agent"].items()}
        self.payoffs.load_state_dict(state["payoffs"])

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        moved = {name: move.evaluations(state[name]) for name in ("population", "arrived")}
        return {**state, **moved, **{name: move.individuals(state[name]) for name in ("queue", "policies")}}


def _name(player: Player) -> str:
    """What tables call an agent, ``main 0``, or a snapshot of it, ``main 0, number 7``."""
    if player.agent is None:
        return f"{player.role} {player.number}"
    return f"{player.role} {player.agent}, number {player.number}"
