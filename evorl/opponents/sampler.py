"""Samplers whose learner plays against opponents, and the source of their batches.

`evorl.opponents.arena.OpponentArena` draws the opponent of each episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evorl.cluster.core import Group
from evorl.mdp.begin import begin
from evorl.mdp.core import StepsTogether, World
from evorl.opponents.arena import RESULT, RETURN, OpponentArena, OpponentsTogether
from evorl.opponents.core import Pooled
from evorl.opponents.deciders import Deciders
from evorl.opponents.pool import RUNS, Game, Opponent, Pool, Table, row
from evorl.rl.batch import Batch
from evorl.rl.core import Episode, Hyper, Learner
from evorl.rl.frozen_policies import form_of
from evorl.rl.network_learner import with_network
from evorl.rl.points import points
from evorl.rl.sampler import Sampler, episodes
from evorl.rl.sources import Lockstep, SourceItem
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

Policies = dict[int, Sequence[Tensor]]
"""Weights of opponents, by number."""


class RunPolicy(NamedTuple):
    """A run whose policy is in the pool."""

    name: str
    hyper: Hyper
    config: Mapping[str, Any]
    """The same as plain data."""
    read: Callable[[], tuple[int, list[Tensor]]] = lambda: (0, [])
    """Returns environment steps and weights; nothing where a checkpoint brings them."""


class Forms(NamedTuple):
    """The forms of the networks in a pool."""

    further: list[Hyper]
    """An algorithm of each, but not of the learner's own."""
    of_others: list[int]
    """Of each other run."""


def forms(own: Hyper, others: Sequence[RunPolicy]) -> Forms:
    """Return which policies of other runs decide in one pass."""
    by_form = {form_of(own): own}
    for other in others:
        by_form.setdefault(form_of(other.hyper), other.hyper)
    keys = [*by_form]
    return Forms([*by_form.values()][1:], [keys.index(form_of(other.hyper)) for other in others])


def as_opponents(others: Sequence[RunPolicy], of_others: Sequence[int]) -> list[Opponent]:
    """Read the policies of other runs, whose forms are known. Raises `BadRequest`."""
    policies = []
    for place, (policy, form) in enumerate(zip(others, of_others, strict=True)):
        step, weights = policy.read()
        policies.append(Opponent(RUNS - place, policy.name, step, weights, form))
    return policies


class OpposedSampler:
    """A `Sampler` with opponents. It begins with its first call, which brings them.

    It holds the weights of opponents as long as they are in the table. A call brings those of new ones alone; a sampler
    that is made again is told what the others hold (`held`).
    """

    def __init__(
        self, opponents: Pooled, further: Sequence[Hyper], world: World, hyper: Hyper, seed: int, device: torch.device,
        member: int,
    ) -> None:  # fmt: skip
        """``further``: algorithms of further forms (`Forms`); ``world``: of all sides."""
        torch.set_num_threads(hyper.threads)
        keys, team = episodes(seed, member), world.team_sides
        if hyper.slots % team:
            near = max(team, round(hyper.slots / team) * team)
            raise BadRequest(f"a team has {team} slots: take a multiple of that, such as {near}", "rl.slots")
        games = hyper.slots // team
        arena = begin(world, games * world.sides, keys)
        try:
            examples = [each.learner(arena.spec, seed, torch.device("cpu")) for each in (hyper, *further)]
            networks = [with_network(each, "a game against opponents", "rl") for each in examples]
            deciders = Deciders(networks, games * (world.sides - team))
        except BaseException:
            arena.close()
            raise
        kind = OpponentsTogether if isinstance(arena, StepsTogether) else OpponentArena
        self.arena = kind(
            arena, keys, deciders, opponents.deterministic, seed, "opponents", member,
            sides=opponents.sides, first=member * games, team=team,
        )  # fmt: skip
        self._make: Callable[[], Sampler] = partial(Sampler, self.arena, hyper, seed, device, member)
        self._sampler: Sampler | None = None
        self._state: StateDict | None = None  # to continue from
        self._held: Policies = {}

    def collect(self, weights: list[Tensor], iteration: int, new: list[int], *table: Any) -> dict[str, Any]:
        """As `Sampler.collect`; also the games that ended (opponent and points) and the opponents that play on.

        ``table`` is a `Table` with the weights of the opponents ``new`` alone, all others of it are held.
        """
        begin = partial(self.arena.use, self._completed(new, Table(*table)), weights, iteration)
        begin()
        if self._sampler is None:
            self._sampler = self._make()
        if self._state is not None:
            self._sampler.load_state_dict(self._state)
            self._state = None
            begin()
        reply = self._sampler.collect(weights, iteration)
        games = [list(game_of(team)) for team in _teams(reply["episodes"], self.arena.sides)]
        return {**reply, "games": games, "seated": self.arena.seated()}

    def _completed(self, new: list[int], table: Table) -> Table:
        """Hold the opponents of a table, and no others. Return the table with the weights of all."""
        known = {**self._held, **dict(zip(new, table.weights, strict=True))}
        self._held = {number: known[number] for number in table.numbers.tolist()}
        return table._replace(weights=[*self._held.values()])

    def state_dict(self) -> StateDict:
        if self._state is not None or self._sampler is None:
            return {"begins": True} if self._state is None else self._state
        return self._sampler.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a state; or hold the opponents of ``state``, if it is what `held` returns."""
        if "held" in state:
            self._held = dict(zip(state["held"], state["weights"], strict=True))
        else:
            self._state = None if state.get("begins") else state

    def close(self) -> None:
        self.arena.close()


def held(policies: Policies) -> StateDict | None:
    """What a sampler that is made again has to hold, as plain data; None if it is nothing."""
    return {"held": [*policies], "weights": [*policies.values()]} if policies else None


def _teams(episodes: Sequence[Episode], sides: int) -> list[Sequence[Episode]]:
    """The episodes of each game, which lie next to each other."""
    return [episodes[at : at + sides] for at in range(0, len(episodes), sides)]


def game_of(team: Sequence[Episode]) -> Game:
    """Take the opponent out of the results of a game, and the learner's points.

    ``team``: the episodes of its sides, which have won or lost together. In a world that does not report who has won,
    the mean return of the team counts against that of the opponent's sides.
    """
    opponents = {int(episode.results.pop(RESULT)) for episode in team}
    others = [episode.results.pop(RETURN) for episode in team]
    mine = team[0]._replace(ret=sum(episode.ret for episode in team) / len(team))
    won = points(mine) if "win" in mine.results else points(mine, mine._replace(ret=others[-1]))
    return Game(opponents.pop(), won)


class OpposedLockstep(Lockstep):
    """Every member plays under the newest weights, against opponents that one pool chooses."""

    def __init__(self, group: Group, storage: Batch, pool: Pool) -> None:
        super().__init__(group, storage)
        self.pool = pool
        self._held: Policies = {}  # by every member, once it has the call under way
        group.set_recovery_state(lambda: held(self._held))

    def take(self, learner: Learner, step: int, iteration: int) -> SourceItem:
        self.pool.add_if_due(learner.weights(), step, iteration)
        table = self.pool.table()
        policies = dict(zip(table.numbers.tolist(), table.weights, strict=True))
        new = [number for number in policies if number not in self._held]
        sent = table._replace(weights=[policies[number] for number in new])
        self._held = policies  # before the call: a member may be made again after its answer, while others are at work
        parts = self.group.all("collect", learner.weights(), iteration, new, *sent)
        games = [Game(int(opponent), float(points)) for part in parts for opponent, points in part["games"]]
        forgotten = self.pool.record(games, {int(number) for part in parts for number in part["seated"]})
        item = self.item(parts)
        left = [row(gone, step + item.cost, None) for gone in forgotten]
        return item._replace(metrics=self.pool.metrics(), left=left)

    def state_dict(self) -> StateDict:
        return {"pool": self.pool.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self.pool.load_state_dict(state["pool"])
        self._held = {}  # the same numbers may be others now
