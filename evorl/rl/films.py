"""Pictures of an evaluation episode, played again: the same bits as when it was evaluated among others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from evorl.mdp.core import Arena, Array, EpisodeEndHook, World
from evorl.nets.distributions import noise_size
from evorl.rl.actor import Player
from evorl.rl.core import Acting, Decision, Episode
from evorl.rl.evaluation import MAX_STEPS, limited_arena, slots_of
from evorl.util.errors import BadRequest
from evorl.util.seed import Shifted

Which = Literal["best", "median"]


def chosen(which: Sequence[Which], episodes: Sequence[Episode]) -> dict[Which, int]:
    """The numbers of these episodes, by fitness or else by return; the first of equal ones. The median of an even
    number is the lower of the two in the middle."""
    scores = [one.results.get("fitness", one.ret) for one in episodes]
    ranked = sorted(scores)
    value = {"best": ranked[-1], "median": ranked[(len(ranked) - 1) // 2]}
    return {one: scores.index(value[one]) for one in which}


def frames(
    learner: Acting, world: World, seed: int, number: int, episodes: int, max_steps: int = MAX_STEPS
) -> Iterator[Array]:
    """The picture before each decision of one of so many evaluation episodes of the deterministic policy and, if the
    world has it, the final one. Raises `BadRequest` where the world draws none."""
    world = world.evaluation_world()
    slots = slots_of(world, episodes)
    game = number % slots // world.sides
    keys = Shifted(seed, "evaluate", evaluation=True, first_slot=game, first_episode=number // slots)
    arena = limited_arena(world, world.sides, keys, max_steps)
    try:
        yield from _game(arena, InRows(learner, slots, game * world.sides))
    finally:
        arena.close()


def _game(arena: Arena, policy: Acting) -> Iterator[Array]:
    player = Player(arena, policy)
    still = torch.zeros(arena.slots, noise_size(arena.spec.action))
    end: list[Array | None] = []
    if isinstance(arena, EpisodeEndHook):
        arena.on_episode_end = lambda: end.append(arena.render(0))
    over = False
    while not over:
        picture = arena.render(0)
        if picture is None:
            raise BadRequest("this world draws no pictures", "video")
        yield picture
        player.send(player.now.slots, player.decide(still))
        over = bool(player.recv()[1])
    yield from (picture for picture in end[-1:] if picture is not None)


class InRows:
    """A policy whose forward passes have ``rows`` rows, of which those from ``first`` on are asked for.

    A pass of one row may round unlike one of many, and then a game goes another way.
    """

    def __init__(self, learner: Acting, rows: int, first: int) -> None:
        self.learner, self.rows, self.first, self.spec = learner, rows, first, learner.spec

    def carry(self, slots: int) -> Tensor | None:
        return self.learner.carry(slots)

    def act(
        self,
        inputs: tuple[Tensor, ...],
        legal: Tensor | None,
        noise: Tensor,
        carry: Tensor | None,
        start: Tensor | None,
    ) -> Decision:
        slots = len(noise)
        source = torch.arange(self.rows).sub(self.first).remainder(slots)  # the other rows are copies

        def spread(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[source]

        many = tuple(x[source] for x in inputs)
        state = None if carry is None else carry[:, source]
        out = self.learner.act(many, spread(legal), noise[source], state, spread(start))
        own = slice(self.first, self.first + slots)
        return Decision(
            out.action[own], out.played[own], out.log_prob[own], out.value[own],
            None if out.carry is None else out.carry[:, own],
        )  # fmt: skip
