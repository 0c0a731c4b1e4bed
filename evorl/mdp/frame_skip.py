"""Actions that are repeated, in any world: ``frame_skip`` and ``skip_gamma`` of its config.

    r'_t = sum_{k < n} gamma^k r_{t+k}

An action is taken n times: as often as the episode says, or until its side's episode ends, or until it is not legal any
more. A side then decides again. All sides of a game repeat their actions equally often, by a number that the episode's
key draws. The rule player that plays a side by `evorl.mdp.decision_arrays.rule_actions` decides anew each time.

Letters in shapes: B slots, R rewards, K components of an action, n rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evorl.mdp.core import Arena, Array, Decisions, SavedAtAnyTime, StateDict, StepsTogether, first_choices
from evorl.mdp.decision_arrays import action_format
from evorl.mdp.wrapped_arena import EpisodesOfSlots, WrappedArena
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.heartbeat import heartbeat
from evorl.util.saved import restore, saved
from evorl.util.seed import Episodes

SAVED = ("action", "left", "weight", "total", "raw", "length", "acting", "waits")


def bounds(frame_skip: int | tuple[int, int]) -> tuple[int, int]:
    """The least and the most repeats. Raises `BadRequest`."""
    least, most = frame_skip if isinstance(frame_skip, tuple) else (frame_skip, frame_skip)
    if not 1 <= least <= most:
        listed = list(frame_skip) if isinstance(frame_skip, tuple) else frame_skip
        raise BadRequest(f"expected an int >= 1, or [least, most] of such, got {listed}", "frame_skip")
    return least, most


class SkippingArena(WrappedArena, SavedAtAnyTime):
    """An arena in which a decision is several of the arena within.

    Slots come to wait at different times, also where those of the arena within step together. Actions are passed on
    at the next `recv`: all at once, as such an arena needs them. Episodes of which the world reports no return and no
    length have those of the arena within: a return without ``gamma``.
    """

    def __init__(self, arena: Arena, episodes: Episodes, repeats: tuple[int, int], gamma: float) -> None:
        super().__init__(arena)
        slots, (dtype, width) = arena.slots, action_format(arena.spec.action)
        self._bounds, self._gamma = repeats, gamma
        self._episodes = EpisodesOfSlots(arena, episodes)
        self._repeats = np.zeros(slots, np.int64)  # of an action, in the present episode
        self.action = np.zeros((slots, width), dtype)
        self.left = np.zeros(slots, np.int64)  # repeats to come
        self.weight = np.ones(slots)  # gamma^k
        self.total = np.zeros((slots, len(arena.spec.rewards)))
        self.raw = np.zeros(slots)  # return of the episode
        self.length = np.zeros(slots, np.int64)  # its decisions in the arena within
        self.acting, self.waits, self._due = np.zeros((3, slots), np.bool_)  # due: the action is to be passed on
        self._loaded = False
        self._shown: Decisions | None = None  # by the last `recv`
        self._reward = np.zeros((slots, len(arena.spec.rewards)), np.float32)
        self._offsets = first_choices(arena.spec.action)  # of each component's part of a mask
        self._draw(np.arange(slots))

    def _draw(self, slots: Array) -> None:
        """Draw how often actions are repeated in the present episodes of these slots."""
        least, most = self._bounds
        for slot in slots.tolist() if least < most else ():
            self._repeats[slot] = least + seeds.below(
                seeds.key("frame skip", self._episodes.key(slot)), most - least + 1
            )
        if least == most:
            self._repeats[slots] = least

    def recv(self) -> Decisions:
        if self._shown is not None and self.waits.all() and isinstance(self, StepsTogether):
            return self._shown  # the same until actions are sent
        cost = 0
        while True:
            if self._due.any():
                self._pass_on()
            heartbeat()
            decisions = self.arena.recv()
            cost += decisions.cost
            ready = self._resume(decisions) if self._loaded else self._take(decisions)
            results = self._results(decisions)
            if len(ready):
                break
        self.waits[ready] = True
        self._shown = replace(decisions, slots=ready, reward=self._reward, cost=cost, results=results)
        return self._shown

    def send(self, slots: Array, actions: Array) -> None:
        self.action[slots], self.left[slots] = actions, self._repeats[slots]
        self.weight[slots], self.total[slots] = 1, 0
        self.acting[slots] = self._due[slots] = True
        self.waits[slots] = False

    def _pass_on(self) -> None:
        slots = np.flatnonzero(self._due)
        self._due[:] = False
        self._episodes.send(slots)
        self.arena.send(slots, self.action[slots])

    def _take(self, decisions: Decisions) -> Array:
        """Add what the actions of these rows have earned; return the slots that decide next."""
        rows = decisions.slots
        acted = rows[self.acting[rows]]
        self.total[acted] += self.weight[acted, None] * decisions.reward[acted]
        self.weight[acted] *= self._gamma
        self.left[acted] -= 1
        self.raw[acted] += decisions.reward[acted].sum(1)
        self.length[acted] += 1
        failed = np.array(decisions.failed, np.int64)
        self.total[failed], self.raw[failed], self.length[failed], self.left[failed] = 0, 0, 0, 0
        goes_on = self.acting[rows] & (self.left[rows] > 0) & ~(decisions.terminated[rows] | decisions.truncated[rows])
        goes_on &= self._legal(decisions, rows)
        ready, more = rows[~goes_on], rows[goes_on]
        self._due[more] = True
        self.acting[ready] = False
        self._reward[ready] = self.total[ready]
        return np.asarray(ready)

    def _resume(self, decisions: Decisions) -> Array:
        """After a load: return the slots that decided when the state was saved; the others repeat their actions."""
        self._loaded = False
        waits = self.waits[decisions.slots]
        self._due[decisions.slots[~waits]] = True
        self._reward[:] = 0
        return np.asarray(decisions.slots[waits])

    def _legal(self, decisions: Decisions, rows: Array) -> Array:
        """Whether these slots may take their actions again, bool [n]."""
        if decisions.legal is None:
            return np.ones(len(rows), np.bool_)
        action = self.action[rows]
        allowed: Array = decisions.legal[rows[:, None], self._offsets + np.maximum(action, 0)] | (action < 0)
        return np.asarray(allowed.all(1))

    def _results(self, decisions: Decisions) -> list[tuple[int, dict[str, float]]]:
        """The results of ended episodes; begins the next ones."""
        own = {
            slot: {"return": float(self.raw[slot]), "length": float(self.length[slot])} for slot, _ in decisions.results
        }
        over = self._episodes.ended(decisions)
        if len(over):
            self.raw[over], self.length[over] = 0, 0
            self._draw(over)
        return [(slot, {**own[slot], **results}) for slot, results in decisions.results]

    def state_dict(self) -> StateDict:
        return {
            "arena": self.arena.state_dict(), "episodes": self._episodes.state_dict(),
            **saved(self, SAVED),
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        self.arena.load_state_dict(state["arena"])
        self._episodes.load_state_dict(state["episodes"])
        restore(self, SAVED, state)
        self._due[:], self._loaded, self._shown = False, True, None
        self._draw(np.arange(self.slots))
