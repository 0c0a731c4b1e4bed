"""Pictures of an evaluation episode, played again: the same bits as when it was evaluated among others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Arena, Array, EpisodeEndHook, FrameHook, World
from evorl.nets.distributions import noise_size
from evorl.rl.actor import Player
from evorl.rl.core import Acting, Decision, Episode
from evorl.rl.evaluation import MAX_STEPS, limited_arena, slots_of
from evorl.util.errors import BadRequest
from evorl.util.seed import Shifted
from evorl.util.text import listed

Which = Literal["best", "median"]
Shown = tuple[Array, float]
"""A picture, and when it was seen first, in seconds."""
STEPS_PER_S = 30.0
"""Environment steps a second of a world without a clock."""
MOST_FPS = 50.0
"""Pictures a second of a film; those of faster worlds are thinned evenly. Viewers slow down faster GIFs."""


def chosen(which: Sequence[Which], episodes: Sequence[Episode]) -> dict[Which, int]:
    """The numbers of these episodes, by fitness or else by return; the first of equal ones. The median of an even
    number is the lower of the two in the middle."""
    scores = [episode.results.get("fitness", episode.ret) for episode in episodes]
    ranked = sorted(scores)
    value = {"best": ranked[-1], "median": ranked[(len(ranked) - 1) // 2]}
    return {pick: scores.index(value[pick]) for pick in which}


@dataclass(frozen=True)
class Film:
    """One of the evaluation episodes of the deterministic policy, played again."""

    frames: Iterator[Array]
    """Pictures uint8 [H, W, 3] at even times. The first raises `BadRequest` where the world draws none."""
    fps: float
    """Pictures per second with which the game has its own speed."""
    agent: str
    """The agent's side in this game: ``knight (blue)``; empty where the world does not name its sides."""


def film(
    learner: Acting,
    world: World,
    seed: int,
    number: int,
    episodes: int,
    max_steps: int = MAX_STEPS,
    steps_per_second: float | None = None,
) -> Film:
    """Return the film of one of so many evaluation episodes.

    It shows each picture as long as it stood in the game: by the game's clock if it has one, else by its environment
    steps (`World.seconds_per_step`). ``steps_per_second`` plays it at another speed.
    """
    world = world.evaluation_world()
    slots = slots_of(world, episodes)
    game = number % slots // world.sides
    keys = Shifted(seed, "evaluate", evaluation=True, first_slot=game, first_episode=number // slots)
    sides = world.players(int(keys(0, 0)))
    names = [world.side_names[side] for side in sides] if world.side_names else []
    begin = partial(limited_arena, world, world.sides, keys, max_steps)
    return film_of_game(
        world, begin, InRows(learner, slots, game * world.sides), _no_noise, listed(names), steps_per_second
    )


def film_of_game(
    world: World, begin: Callable[[], Arena], policy: Acting, noise: Callable[[Player], Tensor], agent: str,
    steps_per_second: float | None = None,
) -> Film:  # fmt: skip
    """Return the film of the first game in the arena that ``begin`` starts; ``noise`` is that of the next decisions."""
    clock = steps_per_second is None
    step_s = (world.seconds_per_step or 1 / STEPS_PER_S) if steps_per_second is None else 1 / steps_per_second
    fps = fps_of(step_s)

    def play() -> Iterator[Array]:
        arena = begin()
        try:
            yield from at_rate(_game(arena, policy, noise, step_s, clock), fps)
        finally:
            arena.close()

    return Film(play(), fps, agent)


def _no_noise(player: Player) -> Tensor:
    return torch.zeros(player.arena.slots, noise_size(player.arena.spec.action))


def fps_of(step_s: float) -> float:
    """Pictures a second of a film of a world whose environment steps take so long."""
    return 1 / (step_s * math.ceil(1 / (step_s * MOST_FPS)))


def at_rate(shown: Iterable[Shown], fps: float) -> Iterator[Array]:
    """Yield the picture that is seen at times 0, 1/fps, 2/fps, ..., and the last one."""
    number, newest = 0, None
    for picture, at in shown:
        while newest is not None and number / fps < at - 1e-6:
            yield newest
            number += 1
        newest = picture
    if newest is not None:
        yield newest


def _game(
    arena: Arena, policy: Acting, noise: Callable[[Player], Tensor], step_s: float, clock: bool
) -> Iterator[Shown]:
    """Yield the picture before each decision, those in between that the game offers, and the final one if it has it."""
    reel = _Reel(arena, step_s, clock)
    if isinstance(arena, FrameHook):
        arena.on_frame = reel.offer
    if isinstance(arena, EpisodeEndHook):
        arena.on_episode_end = reel.end
    player = Player(arena, policy)
    over, number, shown = False, 0, 0  # the decisions of the episode so far, and those that were shown
    while not over:
        if not reel.take():
            raise BadRequest("this world draws no pictures", "video")
        pictures = reel.cut()
        if number == shown:  # an episode that starts again repeats what was shown
            yield from pictures
            shown += 1
        player.send(player.decisions.slots, player.play(noise(player)))
        decisions, ended = player.recv()
        if player.broken:
            reel.rewind()
            number = 0
        else:
            reel.pass_steps(decisions.cost)
            number += 1
        over = bool(ended)
    yield from reel.cut()


class _Reel:
    """Pictures of a game that were taken since the last `cut`, with their times."""

    def __init__(self, arena: Arena, step_s: float, clock: bool) -> None:
        self._arena, self._step_s = arena, step_s
        self._clock = arena if clock and isinstance(arena, FrameHook) else None
        self._steps = self._offered = 0  # environment steps up to the last decision, and pictures since then
        self._taken: list[Shown] = []
        self._final: tuple[Array, float | None] | None = None
        self._ended = False

    def take(self) -> bool:
        """Take a picture; return whether there was one. Raises `BadRequest` if it is none of ours."""
        picture = self._arena.render(0)
        if picture is not None:
            at = self._seconds()
            self._taken.append((_checked(picture), (self._steps + self._offered) * self._step_s if at is None else at))
        return picture is not None

    def offer(self) -> None:
        """Take a picture between decisions. Without a clock, each of them is an environment step after the last."""
        if not self._ended:
            self._offered += 1
            self.take()

    def end(self) -> None:
        """Take the last picture; the cost of the last decision is not known yet."""
        picture = self._arena.render(0)
        self._final, self._ended = None if picture is None else (_checked(picture), self._seconds()), True

    def rewind(self) -> None:
        """Forget the pictures since the last `cut`: the game starts again."""
        self._taken, self._steps, self._offered = [], 0, 0
        self._final, self._ended = None, False

    def pass_steps(self, cost: int) -> None:
        self._steps, self._offered = self._steps + cost, 0

    def cut(self) -> list[Shown]:
        taken, self._taken = self._taken, []
        if self._final is not None:
            (picture, at), self._final = self._final, None
            taken.append((picture, self._steps * self._step_s if at is None else at))
        return taken

    def _seconds(self) -> float | None:
        return None if self._clock is None else self._clock.seconds(0)


def _checked(picture: Array) -> Array:
    """A copy of a picture: the world may draw into the same array again."""
    copy = np.array(picture)
    if copy.dtype != np.uint8 or copy.ndim != 3 or copy.shape[2] != 3:
        raise BadRequest(f"a picture must be uint8 [H, W, 3], render() returned {copy.dtype} {[*copy.shape]}", "video")
    return copy


class InRows:
    """A policy whose forward passes have ``rows`` rows, of which those from ``first`` on are asked for.

    A pass of one row may round differently from a pass of many, and then the game differs.
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
