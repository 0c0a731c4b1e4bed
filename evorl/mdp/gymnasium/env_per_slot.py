"""The engine for any gymnasium environment: one environment per slot, in a `SyncVectorEnv`.

Autoreset is disabled: ``reset_mask`` resets an ended slot with the seed of its own next episode.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from evorl.mdp.arena import FAILURES
from evorl.mdp.core import Array, WorldError
from evorl.mdp.decision_arrays import empty_decisions
from evorl.mdp.gymnasium import spaces
from evorl.mdp.gymnasium.action_log import ActionLog
from evorl.mdp.gymnasium.camera import Camera, can_render
from evorl.util.types import StateDict

LOG = logging.getLogger("evorl")
Seen = Any  # an array where there is one input, else a tuple of them
Outcome = tuple[Seen, float, bool, bool, dict[str, Any]]


class SlotEnv(gymnasium.Wrapper[Seen, Any, Any, Any]):
    """The environment of one slot. It converts observations, and its errors do not reach other slots.

    If an environment raises, `SyncVectorEnv` stops halfway: environments before it have stepped, those after it have
    not, and the failed one is not named. So this wrapper catches every error: it makes a new environment, truncates
    the episode as ``broken`` and starts it again with the same seed. Raises `WorldError` when one seed failed
    three times.

    An action is repeated ``frame_skip`` times, or until the episode ends. ``new_env_per_episode`` is for environments
    that carry state from one episode to the next.
    """

    def __init__(self, make: Callable[..., Any], number: int, frame_skip: int, new_env_per_episode: bool) -> None:
        super().__init__(make())
        self._make, self._number, self._frame_skip, self._new_env_per_episode = (
            make,
            number,
            frame_skip,
            new_env_per_episode,
        )
        self._parts = spaces.observation(self.env.observation_space)
        self.observation_space = spaces.observation_space_of([part for part, _ in self._parts])
        form, _ = self._parts[0]
        self._plain = form.shape if form.dtype == "float32" and len(self._parts) == 1 else None
        self._integer = isinstance(self.env.action_space, gymnasium.spaces.Discrete)
        self.seen: Seen = None
        self.seed = -1
        self.failures = 0  # of the present episode
        self.length = 0  # environment steps of the present episode
        self.cost = 0  # environment steps of the last decision
        self.broken = False
        self.stopped = False

    def step(self, action: Any) -> Outcome:
        if self.stopped:
            self.cost = 0
            return self.seen, 0.0, False, False, {}
        try:
            return self.advance(action)
        except Exception as error:
            self._fail(error)
            self.broken, self.cost = True, 0
            return self.seen, 0.0, False, True, {}

    def advance(self, action: Any) -> Outcome:
        """Take one decision, without catching the environment's errors."""
        action = int(action) if self._integer else action
        total, repeats, over = 0.0, 0, False
        while repeats < self._frame_skip and not over:
            seen, reward, terminated, truncated, _ = self.env.step(action)
            total += float(reward)
            repeats += 1
            over = terminated or truncated
        self.seen = self._form(seen)
        self.length += repeats
        self.cost = repeats
        return self.seen, total, terminated, truncated and not terminated, {}

    def _form(self, seen: Any) -> Seen:
        """Copy an observation into evorl's input arrays; the most common form has a fast path."""
        if type(seen) is np.ndarray and seen.dtype.kind == "f" and seen.shape == self._plain:
            return seen.astype(np.float32)  # a copy: its owner may write it again
        rows = tuple(np.empty(part.shape, part.dtype) for part, _ in self._parts)
        for row, (_, read) in zip(rows, self._parts, strict=True):
            row[...] = read(seen)
        return rows if len(rows) > 1 else rows[0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        assert seed is not None
        if seed != self.seed:
            self.seed, self.failures = seed, 0
        self.broken, self.stopped, self.length = False, False, 0
        while True:
            try:
                if self._new_env_per_episode:
                    self._remake()
                seen, _ = self.env.reset(seed=seed)
                self.seen = self._form(seen)
                return self.seen, {}
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Count a failure of the episode and make a new environment."""
        self.failures += 1
        where = f"{env_id(self.env)}, slot {self._number}, seed {self.seed}"
        if self.failures >= FAILURES:
            trace = "".join(traceback.format_exception(error))
            raise WorldError(f"{where}: failed {FAILURES} times in one episode:\n{trace}") from error
        LOG.warning("%s: starting the episode again after %r", where, error)
        self._remake()

    def _remake(self) -> None:
        with suppress(Exception):  # it may be broken
            self.env.close()
        self.env = self._make()


def env_id(env: gymnasium.Env[Any, Any]) -> str:
    """Return the id of an environment."""
    spec = env.unwrapped.spec
    assert spec is not None
    return spec.id


def _inputs(seen: Seen) -> tuple[Array, ...]:
    return seen if isinstance(seen, tuple) else (seen,)


def _identity(slot: SlotEnv) -> SlotEnv:
    return slot


class EnvPerSlot:
    """``slots`` environments from ``make()``, as `SlotEnv` describes them.

    A saved state holds the seed and the actions of each running episode; loading replays them. The log holds running
    episodes only.
    """

    def __init__(
        self, make: Callable[..., Any], slots: int, frame_skip: int = 1, new_env_per_episode: bool = False
    ) -> None:
        self._slots = [SlotEnv(make, number, frame_skip, new_env_per_episode) for number in range(slots)]
        self._envs: Any = SyncVectorEnv(
            [partial(_identity, slot) for slot in self._slots], copy=False, autoreset_mode=AutoresetMode.DISABLED
        )
        self._action_space = self._slots[0].action_space
        self._name = env_id(self._slots[0])
        self._can_render = can_render(self._slots[0])
        self._camera_of: Callable[[], Camera] = partial(Camera, make, new_env_per_episode)
        self._camera: Camera | None = None
        self._frame_skip = frame_skip
        self.spec, _ = spaces.spec_of(self._slots[0].env.observation_space, self._action_space)
        rows = empty_decisions(self.spec, slots)
        self.inputs, self.terminated, self.truncated = rows.inputs, rows.terminated, rows.truncated
        self.reward = np.zeros(slots)
        self.lengths = np.zeros(slots, np.int64)
        self.cost = 0
        self.broken: set[int] = set()
        self._log = ActionLog(self.spec.action, slots)

    def step(self, actions: Array) -> None:
        self._log.append(actions)
        seen, self.reward, self.terminated, self.truncated, _ = self._envs.step(
            spaces.encode_all(self._action_space, actions)
        )
        self.lengths[:] = [slot.length for slot in self._slots]
        self.cost = sum([slot.cost for slot in self._slots])
        self.broken = {number for number, slot in enumerate(self._slots) if slot.broken}
        sound = range(len(self._slots))
        self._show(seen, [number for number in sound if number not in self.broken] if self.broken else sound)

    def _show(self, seen: Seen, slots: Sequence[int]) -> None:
        sel = slots if len(slots) < len(self._slots) else slice(None)
        for row, new in zip(self.inputs, _inputs(seen), strict=True):
            row[sel] = new[sel]

    def reset(self, slots: Array, seeds: list[int]) -> None:
        given: list[int | None] = [None] * len(self._slots)
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            given[slot] = seed
        mask = np.isin(np.arange(len(given)), slots)
        seen, _ = self._envs.reset(seed=given, options={"reset_mask": mask})
        self._show(seen, slots.tolist())
        self.lengths[slots] = 0
        self.broken.clear()
        self._log.begin(slots.tolist())

    def stop_slot(self, slot: int) -> None:
        self._slots[slot].stopped = True

    def render(self, slot: int) -> Array | None:
        if not self._can_render:
            return None
        self._camera = self._camera or self._camera_of()
        actions = spaces.encode(self._action_space, self._log.of(slot))
        return self._camera.follow(self._slots[slot].seed, [each for each in actions for _ in range(self._frame_skip)])

    def state_dict(self) -> StateDict:
        return {
            "seeds": [slot.seed for slot in self._slots],
            "failures": [slot.failures for slot in self._slots],
            **self._log.state_dict(),
            "inputs": {str(i): row.copy() for i, row in enumerate(self.inputs)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state. Raises `WorldError` if the replay reaches another state."""
        for slot, seed, failures in zip(self._slots, state["seeds"], state["failures"], strict=True):
            slot.seed, slot.failures = seed, failures
        self.reset(np.arange(len(self._slots)), list(state["seeds"]))
        self._log.load_state_dict(state)
        for number, slot in enumerate(self._slots):
            self._replay(slot, self._log.of(number))
            self.lengths[number] = slot.length
            for row, seen in zip(self.inputs, _inputs(slot.seen), strict=True):
                row[number] = seen
        if any(row.tobytes() != state["inputs"][str(i)].tobytes() for i, row in enumerate(self.inputs)):
            raise WorldError(f"{self._name} cannot be resumed: replaying its actions led to another state")

    def _replay(self, slot: SlotEnv, log: Array) -> None:
        for action in spaces.encode(self._action_space, log):
            _, _, terminated, truncated, _ = slot.advance(action)
            if terminated or truncated:
                raise WorldError(f"{self._name} cannot be resumed: replaying its actions ended an episode early")

    def close(self) -> None:
        self._envs.close()
        if self._camera is not None:
            self._camera.close()
