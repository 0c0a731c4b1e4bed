"""A member of a run: one logical shard of its sampling, wherever it lives.

It holds its own episodes and a copy of the policy, and its state is its own: with the weights and the iteration it is
given, that decides every bit of the batch it returns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from evorl.mdp.core import StateDict, World
from evorl.rl.actor import Actor
from evorl.rl.core import Batch, Hyper
from evorl.util.seed import Episodes


class Sampler:
    """Plays ``hyper.slots`` episodes of ``world`` at once."""

    def __init__(self, world: World, hyper: Hyper, seed: int, device: torch.device, member: int) -> None:
        self.arena = world.arena(hyper.slots, Episodes(seed, f"train {member}"))
        try:
            self.learner = hyper.learner(self.arena.spec, seed, device)
            batch = Batch.empty(self.arena.spec, hyper.horizon, hyper.slots, hyper.net.lstm)
            self.actor = Actor(self.arena, self.learner, seed, member, batch)
        except BaseException:
            self.arena.close()
            raise

    def collect(self, weights: list[Tensor], iteration: int) -> dict[str, Any]:
        """One batch under these weights: its fields, its environment steps (cost) and the episodes that ended."""
        self.learner.load_weights(weights)
        cost, episodes = self.actor.collect(iteration)
        return {"batch": vars(self.actor.batch), "cost": cost, "episodes": episodes}

    def state_dict(self) -> StateDict:
        return self.actor.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self.actor.load_state_dict(state)

    def close(self) -> None:
        self.arena.close()
