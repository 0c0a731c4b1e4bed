"""Evaluation of a policy: a pure function of its weights, the world, the seed and the mode."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.begin import begin
from evorl.mdp.core import Action, Arena, Array, StepLimit, StoppableSlots, World
from evorl.nets.distributions import draw_noise, noise_size
from evorl.rl.actor import Player
from evorl.rl.core import Acting, Episode, Learner, Metrics
from evorl.rl.observation_statistics import ObservationStatistics
from evorl.util import seed as seeds

log = logging.getLogger("evorl")
NOISE_BLOCK = 64  # decisions whose noise is drawn at once
SLOTS = 64  # episodes played at once; a constant, since it decides the last bits


MAX_STEPS = 100_000
"""Environment steps after which an evaluation episode is truncated, in a world without a limit of its own."""
PROGRESS_PERIOD_S = 5.0

_show: ContextVar[Callable[[str], None] | None] = ContextVar("show", default=None)


@contextmanager
def progress_shown(show: Callable[[str], None]) -> Iterator[None]:
    """Let evaluations call ``show`` with a line every `PROGRESS_PERIOD_S`."""
    before = _show.set(show)
    try:
        yield
    finally:
        _show.reset(before)


def evaluate_policy(learner: Learner, world: World, seed: int, episodes: int, max_steps: int = MAX_STEPS) -> Metrics:
    """Return ``eval/...`` numbers of the deterministic and the stochastic policy. The first gives the results."""
    still = play_episodes(learner, world, seed, episodes, max_steps, deterministic=True)
    return judged(still, play_episodes(learner, world, seed, episodes, max_steps, deterministic=False))


def judged(still: list[Episode], drawn: list[Episode]) -> Metrics:
    """Return the numbers of `evaluate_policy` of the episodes of the deterministic and of the stochastic policy."""
    metrics = {f"eval/return_{k}": v for k, v in summary([e.ret for e in still]).items()}
    metrics |= {f"eval/stochastic_return_{k}": v for k, v in summary([e.ret for e in drawn]).items()}
    metrics["eval/length_mean"] = float(np.mean([e.length for e in still]))
    for name in still[0].results:
        metrics[f"eval/{name}_mean"] = float(np.mean([e.results[name] for e in still]))
    return metrics


def fitness(metrics: Metrics) -> float:
    """Return the fitness of an evaluation: the world's own if it reports one, else the mean return."""
    return metrics.get("eval/fitness_mean", metrics["eval/return_mean"])


def summary(numbers: list[float]) -> Metrics:
    """Return mean, population standard deviation, minimum and maximum."""
    x = np.asarray(numbers)
    return {"mean": float(x.mean()), "std": float(x.std()), "min": float(x.min()), "max": float(x.max())}


def play_episodes(
    learner: Acting, world: World, seed: int, episodes: int, max_steps: int = MAX_STEPS, *, deterministic: bool
) -> list[Episode]:
    """Play evaluation episodes 0..n-1 of ``seed``: a pure function of the weights, the world, the seed and the mode.

    Every slot plays a fixed number of episodes, so short ones are not favoured. n is rounded up to whole games.
    """
    world = world.evaluation_world()
    episodes = in_whole_games(world, episodes)
    slots = slots_of(world, episodes)
    arena = limited_arena(world, slots, seeds.Episodes(seed, "evaluate", evaluation=True), max_steps)
    try:
        noise, numbers = EvaluationNoise(arena, seed, deterministic), episodes_per_slot(episodes, slots)
        done = play_slots(arena, learner, noise, numbers)
        cut = [number < numbers[slot] for slot, number in arena.cut] if isinstance(arena, StepLimit) else []
        if any(cut):
            log.warning(
                "%d of %d evaluation episodes had no end and were truncated after %s steps (eval.max_steps)",
                sum(cut), episodes, f"{max_steps:,}",
            )  # fmt: skip
    finally:
        arena.close()
    return episodes_in_order(done, episodes)


def limited_arena(world: World, slots: int, episodes: seeds.Episodes, max_steps: int) -> Arena:
    """Start episodes that end: in a world without a limit of its own they are truncated after ``max_steps``.

    Games of several sides, whose sides may wait for each other, are not.
    """
    arena = begin(world, slots, episodes)
    if isinstance(arena, StepLimit) and world.longest_episode is None:
        arena.step_limit = max_steps
    return arena


def in_whole_games(world: World, episodes: int) -> int:
    """Return this number of episodes, rounded up to whole games: each side of a game plays one."""
    return math.ceil(episodes / world.sides) * world.sides


def slots_of(world: World, episodes: int) -> int:
    """Return how many slots play the evaluation episodes: whole games."""
    return in_whole_games(world, min(episodes, SLOTS))


def episodes_per_slot(episodes: int, slots: int) -> list[int]:
    """Return the number of episodes of each slot: equal, with the remainder given to the first slots."""
    return [len(range(slot, episodes, slots)) for slot in range(slots)]


def episodes_in_order(done: list[list[Episode]], episodes: int) -> list[Episode]:
    """Return episodes 0..n-1 from the slots' lists, in the order of evaluation."""
    return [done[e % len(done)][e // len(done)] for e in range(episodes)]


def play_slots(
    arena: Arena,
    learner: Acting,
    noise: EvaluationNoise,
    numbers: list[int],
    watch: ObservationStatistics | None = None,
    count: Callable[[Array, Array], None] | None = None,
) -> list[list[Episode]]:
    """Play ``numbers`` episodes in each slot; ``watch`` sees the inputs of their decisions, ``count`` their slots [n]
    and actions [n, K].

    An episode whose world failed is no result. It is played again with the same key and the same noise, so the episodes
    are those of a world that does not fail. Raises `NotFinite`, and `evorl.cluster.core.Stopped` where that is allowed.
    """
    player = Player(arena, learner)
    done: list[list[Episode]] = [[] for _ in numbers]
    playing = np.array(numbers) > 0
    repeats = np.zeros(arena.slots, np.int64)  # next decisions of each slot that a broken episode made before
    rows = np.arange(arena.slots)
    _stop_finished_slots(arena, np.flatnonzero(~playing).tolist())
    left = total = sum(numbers)
    show, began = _show.get(), time.monotonic()
    due = began + PROGRESS_PERIOD_S
    while left:
        if show is not None and (now_s := time.monotonic()) >= due:
            due = now_s + PROGRESS_PERIOD_S
            longest = f"the longest at {player.lengths[playing].max():,} decisions"
            show(f"evaluating: {total - left} of {total} episodes, {longest}, {now_s - began:.0f} s")
        fresh = rows if watch is None and count is None else rows[repeats[rows] == 0]
        if watch is not None:
            watch.see(player.decisions.inputs, fresh, playing)
        decision = player.play(noise.take(rows))
        if count is not None:
            counted = fresh[playing[fresh]]
            count(counted, decision.played.numpy()[counted])
        repeats[rows] -= repeats[rows] > 0
        player.send(rows, decision)
        states, over = player.recv()
        rows = states.slots
        for slot, decisions in player.broken.items():
            noise.rewind(slot, decisions)
            repeats[slot] += decisions
        if not over:
            continue
        for slot, episode in over:
            if playing[slot]:
                done[slot].append(episode)
                playing[slot] = len(done[slot]) < numbers[slot]
                left -= 1
        _stop_finished_slots(arena, [slot for slot, _ in over if not playing[slot]])
    if watch is not None:
        watch.close()
    return done


def _stop_finished_slots(arena: Arena, slots: list[int]) -> None:
    """Close slots that have played their episodes, so that they cost nothing more."""
    if isinstance(arena, StoppableSlots):
        for slot in slots:
            arena.stop_slot(slot)


class SlotNoise:
    """Noise of decisions, keyed by slot and decision number; zero for the deterministic policy."""

    def __init__(self, action: Action, slots: int, *words: int | str, deterministic: bool) -> None:
        """``words`` name the random stream."""
        self.action, self.words, self.deterministic = action, words, deterministic
        self.t = np.zeros(slots, np.int64)  # decisions of each slot so far
        self.noise = torch.zeros(slots, noise_size(action))
        self.blocks: dict[int, Array] = {}

    def take(self, rows: Array) -> Tensor:
        """Return the noise [B, noise_size] for the next decision of ``rows``."""
        if not self.deterministic:
            out, t = self.noise.numpy(), self.t[rows]
            blocks = t // NOISE_BLOCK
            for block in {*blocks.tolist()}:
                mine = blocks == block
                out[rows[mine]] = self._block(block)[t[mine] % NOISE_BLOCK, rows[mine]]
            self.t[rows] = t + 1
        return self.noise

    def rewind(self, slot: int, decisions: int) -> None:
        """Give the slot the noise of its last decisions once more."""
        if not self.deterministic:
            self.t[slot] -= decisions

    def _block(self, number: int) -> Array:
        if number not in self.blocks:
            needed = int(self.t.min()) // NOISE_BLOCK
            self.blocks = {old: block for old, block in self.blocks.items() if old >= needed}
            generator = seeds.generator(*self.words, number)
            self.blocks[number] = draw_noise(self.action, generator, (NOISE_BLOCK, len(self.t)))
        return self.blocks[number]


class EvaluationNoise(SlotNoise):
    """The noise of an evaluation's decisions."""

    def __init__(self, arena: Arena, seed: int, deterministic: bool) -> None:
        super().__init__(arena.spec.action, arena.slots, seed, "evaluate", deterministic=deterministic)
