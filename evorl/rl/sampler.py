"""Samplers: the members of a training run, each one logical shard of the sampling, in any process.

A sampler holds its own episodes and a copy of the policy. Its state, the weights and the iteration decide every bit of
the batch that it returns. The batch reaches the learner through a source (`evorl.rl.sources`).
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from evorl.mdp.begin import begin
from evorl.mdp.core import Arena, World
from evorl.nets.compiled import require_compiler
from evorl.rl.actor import Actor
from evorl.rl.batch import Batch
from evorl.rl.core import Hyper
from evorl.util.closes import Closes
from evorl.util.seed import Episodes
from evorl.util.types import StateDict


def episodes(seed: int, member: int) -> Episodes:
    """The keys of the episodes that a member of a run plays."""
    return Episodes(seed, f"train {member}")


class Sampler(Closes):
    """Plays ``hyper.slots`` episodes of ``world`` at once, or of an arena of that many slots; ``with`` closes them."""

    def __init__(self, world: World | Arena, hyper: Hyper, seed: int, device: torch.device, member: int) -> None:
        torch.set_num_threads(hyper.threads)
        self.arena = begin(world, hyper.slots, episodes(seed, member)) if isinstance(world, World) else world
        try:
            self.learner = hyper.learner(self.arena.spec, seed, device)
            if hyper.compile and not issubclass(self.learner.update_input, Batch):  # it makes the gradients here
                require_compiler(device)
            self.actor = Actor(self.arena, self.learner, seed, member, hyper.storage(self.arena.spec, hyper.slots))
        except BaseException:
            self.arena.close()
            raise

        self.fragments = 0  # played in a stream
        self.idle = time.monotonic()  # when the last fragment was finished

    def collect(self, weights: list[Tensor], iteration: int) -> dict[str, Any]:
        """Collect one batch under these weights; return its fields, its environment steps and the ended episodes."""
        self.learner.load_weights(weights)
        cost, episodes = self.actor.collect(iteration)
        return {"batch": vars(self.actor.batch), "cost": cost, "episodes": episodes}

    def play(self, weights: list[Tensor], version: int, step: int) -> dict[str, Any]:
        """Collect the next batch of a stream and return it as the learner's update input.

        ``weights`` have seen ``version`` updates by environment step ``step``. The result also holds the environment
        steps (cost), the episodes that ended, the version, and the wait in seconds since the batch before.
        """
        wait = time.monotonic() - self.idle
        self.learner.load_weights(weights)
        cost, episodes = self.actor.collect(self.fragments)
        self.fragments += 1
        update_input = self.learner.to_update_input(self.actor.batch, step)
        self.idle = time.monotonic()
        return {
            "update_input": vars(update_input), "cost": cost, "episodes": episodes,
            "version": version, "wait": wait,
        }  # fmt: skip

    def state_dict(self) -> StateDict:
        """Return the state that decides later batches, except the weights, which the learner sends."""
        return {"actor": self.actor.state_dict(), "fragments": self.fragments}

    def load_state_dict(self, state: StateDict) -> None:
        self.actor.load_state_dict(state["actor"])
        self.fragments = state["fragments"]

    def close(self) -> None:
        self.arena.close()
