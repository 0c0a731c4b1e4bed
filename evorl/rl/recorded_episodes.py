"""Whole episodes as fragments of a replay: what an individual of an evolution plays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.mdp.core import Arena, StoppableSlots
from evorl.replay.storage import Fragment
from evorl.rl.actor import Player
from evorl.rl.core import Acting, Episode
from evorl.rl.evaluation import EvaluationNoise

Array = NDArray[Any]


def record_episodes(arena: Arena, learner: Acting, noise: EvaluationNoise) -> tuple[list[Episode], list[Fragment]]:
    """Play one episode in each slot; return the episodes and their transitions, both by slot. Raises `NotFinite`.

    An episode whose world failed is played again with the same noise, and nothing of it is returned.
    """
    player, rows = Player(arena, learner), np.arange(arena.slots)
    traces = [_Trace() for _ in rows]
    episodes: dict[int, Episode] = {}
    while len(episodes) < arena.slots:
        decision = player.decide(noise.take(rows))
        action = decision.action.numpy()
        for slot in rows.tolist():
            if slot not in episodes:
                traces[slot].see(player, slot)
                traces[slot].action.append(action[slot].copy())
        player.send(rows, decision)
        states, over = player.recv()
        rows, ended = states.slots, dict(over)
        for slot in rows.tolist():
            if slot not in episodes:
                traces[slot].reward.append(states.reward[slot].copy())
        for slot, decisions in player.broken.items():
            noise.rewind(slot, decisions)
            traces[slot] = traces[slot] if slot in episodes else _Trace()
        for slot, episode in ended.items():
            if slot not in episodes:
                traces[slot].end(player, slot)
                episodes[slot] = episode
                if isinstance(arena, StoppableSlots):
                    arena.stop_slot(slot)
    return [episodes[slot] for slot in range(arena.slots)], [trace.fragment() for trace in traces]


class _Trace:
    """One slot's episode so far."""

    def __init__(self) -> None:
        self.states: list[list[Array]] = []  # the inputs of each state
        self.legal: list[Array] = []
        self.action: list[Array] = []
        self.reward: list[Array] = []
        self.terminated = False
        self.final: list[Array] = []  # inputs of the state that the episode was cut at
        self.final_legal: Array | None = None

    def see(self, player: Player, slot: int) -> None:
        self.states.append([x[slot].copy() for x in player.decisions.inputs])
        if player.decisions.legal is not None:
            self.legal.append(player.decisions.legal[slot].copy())

    def end(self, player: Player, slot: int) -> None:
        decisions = player.decisions
        self.see(player, slot)  # the first state of the next episode, which no transition reads
        self.terminated = bool(decisions.terminated[slot])
        self.final = [x[slot].copy() for x in decisions.final]
        last = decisions.legal if decisions.final_legal is None else decisions.final_legal
        self.final_legal = None if last is None else last[slot].copy()

    def fragment(self) -> Fragment:
        """The episode, as the T decisions of one slot that never goes on."""
        t = len(self.action)
        done, terminated = np.zeros((t, 1), bool), np.zeros((t, 1), bool)
        done[-1], terminated[-1] = True, self.terminated
        return Fragment(
            [np.stack(x)[:, None] for x in zip(*self.states, strict=True)],
            np.stack(self.legal)[:, None] if self.legal else None,
            np.stack(self.action)[:, None],
            np.stack(self.reward)[:, None],
            done,
            terminated,
            [_at_the_end(x, t) for x in self.final],
            None if self.final_legal is None else _at_the_end(self.final_legal, t),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
        )


def _at_the_end(x: Array, length: int) -> Array:
    """An array [length, 1, ...] that holds ``x`` in its last row."""
    rows = np.zeros((length, 1, *x.shape), x.dtype)
    rows[-1, 0] = x
    return rows
