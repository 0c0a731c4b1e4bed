"""Samplers whose learner plays against opponents, and the source of their batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evorl.cluster.core import Group
from evorl.mdp.core import World
from evorl.opponents.arena import RESULT, OpponentArena
from evorl.opponents.core import PastSelves
from evorl.opponents.pool import Game, Pool, Table
from evorl.rl.batch import Batch
from evorl.rl.core import Episode, Hyper, Learner
from evorl.rl.frozen_policies import FrozenPolicies
from evorl.rl.network_learner import NetworkLearner
from evorl.rl.points import points
from evorl.rl.sampler import Sampler, episodes
from evorl.rl.sources import Lockstep, SourceItem
from evorl.util.types import StateDict


class OpposedSampler:
    """A `Sampler` with opponents. It begins with its first call, which brings them."""

    def __init__(
        self, opponents: PastSelves, world: World, hyper: Hyper, seed: int, device: torch.device, member: int
    ) -> None:
        """``world``: of all sides (`World.all_sides`)."""
        torch.set_num_threads(hyper.threads)
        keys = episodes(seed, member)
        arena = world.arena(hyper.slots * world.sides, keys)
        try:
            learner = hyper.learner(arena.spec, seed, torch.device("cpu"))
            assert isinstance(learner, NetworkLearner)
            frozen = FrozenPolicies(learner, hyper.slots * (world.sides - 1))
        except BaseException:
            arena.close()
            raise
        self.arena = OpponentArena(arena, keys, frozen, opponents.deterministic, seed, "opponents", member)
        self._make: Callable[[], Sampler] = partial(Sampler, self.arena, hyper, seed, device, member)
        self._sampler: Sampler | None = None
        self._state: StateDict | None = None  # to continue from

    def collect(self, weights: list[Tensor], iteration: int, *table: Any) -> dict[str, Any]:
        """As `Sampler.collect`; also the games that ended (opponent and points) and the opponents that play on."""
        begin = partial(self.arena.use, Table(*table), weights, iteration)
        begin()
        if self._sampler is None:
            self._sampler = self._make()
        if self._state is not None:
            self._sampler.load_state_dict(self._state)
            self._state = None
            begin()
        reply = self._sampler.collect(weights, iteration)
        games = [list(game_of(episode)) for episode in reply["episodes"]]
        return {**reply, "games": games, "seated": self.arena.seated()}

    def state_dict(self) -> StateDict:
        if self._state is not None or self._sampler is None:
            return {"begins": True} if self._state is None else self._state
        return self._sampler.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self._state = None if state.get("begins") else state

    def close(self) -> None:
        self.arena.close()


def game_of(episode: Episode) -> Game:
    """Take the opponent out of an episode's results, and the learner's points."""
    return Game(int(episode.results.pop(RESULT)), points(episode))


class OpposedLockstep(Lockstep):
    """Every member plays under the newest weights, against opponents that one pool chooses."""

    def __init__(self, group: Group, storage: Batch, pool: Pool) -> None:
        super().__init__(group, storage)
        self.pool = pool

    def take(self, learner: Learner, step: int, iteration: int) -> SourceItem:
        self.pool.add_if_due(learner.weights(), step)
        parts = self.group.all("collect", learner.weights(), iteration, *self.pool.table())
        games = [Game(int(opponent), float(points)) for part in parts for opponent, points in part["games"]]
        self.pool.record(games, {int(number) for part in parts for number in part["seated"]})
        return self.item(parts)._replace(metrics=self.pool.metrics())

    def state_dict(self) -> StateDict:
        return {"pool": self.pool.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self.pool.load_state_dict(state["pool"])
