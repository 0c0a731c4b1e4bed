"""Any gymnasium environment as the engine of a `Lockstep` arena: one environment a slot, stepped one by one."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from evorl.mdp import spaces
from evorl.mdp.arena import FAILURES
from evorl.mdp.camera import Camera
from evorl.mdp.core import Array, Spec, StateDict, WorldError
from evorl.mdp.rows import action_form, blank

LOG = logging.getLogger("evorl")


class Stepped:
    """``slots`` environments from ``make()``. An action is repeated ``frame_skip`` times, up to the episode's end.

    With ``anew``, each episode has an environment of its own: for those that remember earlier episodes.

    An episode is its seed and its actions: a state holds those, and loading plays them
    again. The log therefore grows with the episodes now going on, and no further.
    An environment that raises is made anew and its episode begins again under the same
    seed; `WorldError` when one seed failed three times.
    """

    def __init__(self, make: Callable[..., Any], slots: int, frame_skip: int = 1, anew: bool = False) -> None:
        self._make = make
        self._envs = [make() for _ in range(slots)]
        self._name = self._envs[0].unwrapped.spec.id
        self._frame_skip = frame_skip
        self._anew = anew
        parts = spaces.observation(self._envs[0].observation_space)
        self.spec = Spec(tuple(part for part, _ in parts), spaces.action(self._envs[0].action_space))
        rows = blank(self.spec, slots)
        self.inputs, self.terminated, self.truncated = rows.inputs, rows.terminated, rows.truncated
        self.reward = np.zeros(slots)
        self.lengths = np.zeros(slots, np.int64)
        self.cost = 0
        self.broken: set[int] = set()
        self._writes = [(row, read) for row, (_, read) in zip(self.inputs, parts, strict=True)]
        self._seeds: list[int] = [-1] * slots
        self._failures = [0] * slots  # of the present episode
        self._log: list[Array] = []  # actions [B, K] since the oldest present episode began
        self._begun = [0] * slots  # where each present episode begins in the log
        self._camera: Camera | None = None

    def step(self, actions: Array) -> None:
        self._log.append(np.array(actions))
        self.cost = 0
        for slot, action in enumerate(spaces.encode(self._envs[0].action_space, actions)):
            try:
                self._advance(slot, action)
            except Exception as error:
                self._fail(slot, error)
                self.broken.add(slot)
                self.reward[slot], self.terminated[slot], self.truncated[slot] = 0.0, False, True

    def _advance(self, slot: int, action: Any) -> None:
        """One decision of one slot, written to its rows once it is whole."""
        step = self._envs[slot].step
        total, repeats, over = 0.0, 0, False
        while repeats < self._frame_skip and not over:
            seen, reward, terminated, truncated, _ = step(action)
            total += reward
            repeats += 1
            over = terminated or truncated
        self._show(slot, seen)
        self.reward[slot] = total
        self.terminated[slot] = terminated
        self.truncated[slot] = truncated and not terminated
        self.lengths[slot] += repeats
        self.cost += repeats

    def _show(self, slot: int, seen: Any) -> None:
        for row, read in self._writes:
            row[slot] = read(seen)

    def reset(self, slots: Array, seeds: list[int]) -> None:
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            if seed != self._seeds[slot]:
                self._seeds[slot], self._failures[slot] = seed, 0
            self._reset(slot)
            self._begun[slot] = len(self._log)
        self.broken.clear()
        oldest = min(self._begun)
        del self._log[:oldest]
        self._begun = [begun - oldest for begun in self._begun]

    def _reset(self, slot: int) -> None:
        while True:
            try:
                if self._anew:
                    self._renew(slot)
                seen, _ = self._envs[slot].reset(seed=self._seeds[slot])
                self._show(slot, seen)
                break
            except Exception as error:
                self._fail(slot, error)
        self.lengths[slot] = 0

    def _fail(self, slot: int, error: Exception) -> None:
        """Note that a slot's episode broke, and give the slot a new environment."""
        self._failures[slot] += 1
        where = f"{self._name}, slot {slot}, seed {self._seeds[slot]}"
        if self._failures[slot] >= FAILURES:
            trace = "".join(traceback.format_exception(error))
            raise WorldError(f"{where}: failed {FAILURES} times in one episode:\n{trace}") from error
        LOG.warning("%s: starting the episode again after %r", where, error)
        self._renew(slot)

    def _renew(self, slot: int) -> None:
        with suppress(Exception):  # it may be broken
            self._envs[slot].close()
        self._envs[slot] = self._make()

    def _actions(self, slot: int) -> Array:
        """The slot's actions [T, K] of its present episode."""
        dtype, width = action_form(self.spec.action)
        return np.array([actions[slot] for actions in self._log[self._begun[slot] :]], dtype).reshape(-1, width)

    def render(self, slot: int) -> Array | None:
        if "rgb_array" not in self._envs[slot].metadata.get("render_modes", ()):
            return None
        self._camera = self._camera or Camera(self._make, self._anew)
        actions = spaces.encode(self._envs[slot].action_space, self._actions(slot))
        return self._camera.follow(self._seeds[slot], [each for each in actions for _ in range(self._frame_skip)])

    def state_dict(self) -> StateDict:
        logs = [self._actions(slot) for slot in range(len(self._envs))]
        return {
            "seeds": list(self._seeds),
            "failures": list(self._failures),
            "lengths": list(map(len, logs)),
            "actions": np.concatenate(logs),
            "inputs": {str(i): row.copy() for i, row in enumerate(self.inputs)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Raises `WorldError` when the replay leads elsewhere."""
        self._seeds, self._failures = list(state["seeds"]), list(state["failures"])
        logs = np.split(np.asarray(state["actions"]), np.cumsum(state["lengths"])[:-1])
        for slot, log in enumerate(logs):
            self._reset(slot)
            self._replay(slot, log)
        if any(row.tobytes() != state["inputs"][str(i)].tobytes() for i, row in enumerate(self.inputs)):
            raise WorldError(f"{self._name} cannot be resumed: replaying its actions led to another state")
        longest = max(map(len, logs))
        self._begun = [longest - len(log) for log in logs]
        self._log = _side_by_side(logs, longest)

    def _replay(self, slot: int, log: Array) -> None:
        for action in spaces.encode(self._envs[slot].action_space, log):
            self._advance(slot, action)
            if self.terminated[slot] or self.truncated[slot]:
                raise WorldError(f"{self._name} cannot be resumed: replaying its actions ended an episode early")

    def close(self) -> None:
        for env in self._envs:
            env.close()
        if self._camera is not None:
            self._camera.close()


def _side_by_side(logs: list[Array], longest: int) -> list[Array]:
    """Logs [T_s, K] of B slots, all ending now, as ``longest`` rows [B, K]; what was before a log's start is zero."""
    rows = np.zeros((longest, len(logs), logs[0].shape[1]), logs[0].dtype)
    for slot, log in enumerate(logs):
        rows[longest - len(log) :, slot] = log
    return list(rows)
