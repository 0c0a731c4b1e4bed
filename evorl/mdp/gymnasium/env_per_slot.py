"""The engine for any gymnasium environment: one environment per slot, stepped one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from evorl.mdp.action_log import ActionLog, copied
from evorl.mdp.core import Array, WorldError, first_choices, heads
from evorl.mdp.decision_arrays import empty_decisions
from evorl.mdp.forms import Form, Mismatch, NoResult, Resolution
from evorl.mdp.gymnasium import spaces
from evorl.mdp.gymnasium.camera import Camera, can_render
from evorl.mdp.gymnasium.masks import LegalMasks
from evorl.mdp.restarts import Restarts
from evorl.util.seed import generator
from evorl.util.stop import pause
from evorl.util.types import StateDict

Seen = Any  # an array where there is one input, else a tuple of them
Outcome = tuple[Seen, float, bool, bool, dict[str, Any]]
_REWARD, _TERMINATED, _TRUNCATED = (
    Form("the reward", (), np.float64),
    Form("terminated", (), np.bool_),
    Form("truncated", (), np.bool_),
)


class SlotEnv(gymnasium.Wrapper[Seen, Any, Any, Any]):
    """The environment of one slot. It converts observations, and its errors do not reach other slots.

    It catches every error and marks the episode as ``broken``. The next reset, with the same seed, makes a new
    environment. Raises `WorldError` when one seed failed three times, and `Mismatch` at once for an observation that is
    not of its declared space.

    An action is repeated until the episode ends or the action is not legal any more, or as often as the episode drew it
    between the two numbers of ``frame_skip``; reward number i of these is discounted by ``skip_gamma``^i.
    ``new_env_per_episode`` is for environments that carry state from one episode to the next.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        make: Callable[..., Any],
        number: int,
        restarts: Restarts,
        frame_skip: tuple[int, int],
        new_env_per_episode: bool,
        masks: bool,
        skip_gamma: float,
    ) -> None:
        super().__init__(env)
        self._make, self._number, self._restarts = make, number, restarts
        self._frame_skip, self._new_env_per_episode = frame_skip, new_env_per_episode
        self._skip_gamma = skip_gamma
        self.skip = frame_skip[0]  # of the present episode
        self.total = 0.0  # raw rewards of the present episode
        self._remake = False  # before the next reset
        self._not_before = 0.0  # time of that reset: slots that failed together wait together
        self._parts = spaces.observation(self.env.observation_space)
        space = self.env.observation_space
        self._plain = space.shape if isinstance(space, gymnasium.spaces.Box) and space.dtype.kind == "f" else None
        self._nested = isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)
        self._watched = Resolution.VALUES if number == 0 else 0  # observations whose numbers are still looked at
        self._integer = isinstance(self.env.action_space, gymnasium.spaces.Discrete)
        action = spaces.action(self.env.action_space)
        self._masks = LegalMasks(action, self.env) if masks and heads(action) else None
        self._firsts = first_choices(action)
        self._start = np.ravel(getattr(self.env.action_space, "start", 0))  # the environment's first choices
        self.repeats: list[int] = []  # environment steps of each decision of the present episode
        self.masked = False  # whether every state has a mask
        self.legal: Array | None = None  # bool [L]
        self.seen: Seen = None
        self.seed = -1
        self.failures = 0  # of the present episode
        self.length = 0  # environment steps of the present episode
        self.cost = 0  # environment steps of the last decision
        self.broken = False
        self.stopped = False
        self.info: Mapping[str, Any] = {}  # the last one

    def step(self, action: Any) -> Outcome:
        if self.stopped:
            self.cost = 0
            return self.seen, 0.0, False, False, {}
        try:
            return self.advance(action)
        except Mismatch as error:
            raise self._refused(error) from None
        except Exception as error:
            self._fail(error, self.length + 1)
            self.broken, self.cost = True, 0
            return self.seen, 0.0, False, False, {}

    def advance(self, action: Any) -> Outcome:
        """Take one decision, without catching the environment's errors."""
        action = int(action) if self._integer else action
        total, weight, repeats, over = 0.0, 1.0, 0, False
        while repeats < self.skip and not over:
            seen, reward, terminated, truncated, info = self.env.step(copied(action))
            reward = reward if isinstance(reward, float) else float(_REWARD.fit(reward))
            total += weight * reward
            self.total += reward
            weight *= self._skip_gamma
            repeats += 1
            terminated = terminated if type(terminated) is bool else bool(_TERMINATED.fit(terminated))
            truncated = truncated if type(truncated) is bool else bool(_TRUNCATED.fit(truncated))
            over = terminated or truncated
            if self._masks is not None and repeats < self.skip and not over and not self._allows(info, action):
                break
        self.seen = self._form(seen, whole=over)
        self._see_mask(info, over)
        self.info = info
        self.length += repeats
        self.cost = repeats
        self.repeats.append(repeats)
        return self.seen, total, terminated, truncated and not terminated, {}

    def _form(self, seen: Any, whole: bool) -> Seen:
        """Copy an observation into evorl's input arrays; the most common form has a fast path.

        ``whole``: look for parts that the space does not declare, too. Raises `Mismatch`.
        """
        if self._watched:
            self._watched -= 1
        elif type(seen) is np.ndarray and seen.dtype.kind == "f" and seen.shape == self._plain != ():
            return seen.astype(np.float32)  # a copy: its owner may write it again
        watch = env_id(self.env) if self._watched else ""
        rows = tuple(np.empty(part.shape, part.dtype) for part, _ in self._parts)
        for row, (_, read) in zip(rows, self._parts, strict=True):
            row[...] = read(seen, watch=watch)
        if whole and self._nested:
            spaces.check_members(self.env.observation_space, seen)
        return rows if len(rows) > 1 else rows[0]

    def _see_mask(self, info: Any, over: bool) -> None:
        """Keep the legal actions of the present state. Raises `Mismatch`."""
        if self._masks is not None:
            mask = self._masks.read(info)
            self.legal = self._masks.required(mask, over) if self.masked else mask

    def _allows(self, info: Any, action: Any) -> bool:
        """Whether an action is legal in the present state. Raises `Mismatch`."""
        assert self._masks is not None
        mask = self._masks.read(info)
        return mask is None or bool(mask[self._firsts + np.ravel(action) - self._start].all())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        assert seed is not None
        if seed != self.seed:
            self.seed, self.failures = seed, 0
        self.broken, self.stopped, self.length, self.total, self.repeats = False, False, 0, 0.0, []
        least, most = self._frame_skip
        self.skip = least if least == most else int(generator("frame skip", seed).integers(least, most + 1))
        while True:
            if (left := self._not_before - time.monotonic()) > 0:
                self._restarts.tell()
                pause(left)
            try:
                if self._remake or self._new_env_per_episode:
                    self._replace()
                seen, info = self.env.reset(seed=seed)
                self.seen = self._form(seen, whole=True)
                self._see_mask(info, over=False)
                return self.seen, {}
            except Mismatch as error:
                raise self._refused(error) from None
            except Exception as error:
                self._fail(error, 0)

    def replay(self, log: Array) -> bool:
        """Take the decisions [T, K] of the episode that was just reset; return whether it ended.

        Where the environment fails, the episode starts again.
        """
        while True:
            actions = spaces.encode(self.action_space, log)
            try:
                return any(terminated or truncated for _, _, terminated, truncated, _ in map(self.advance, actions))
            except Mismatch as error:
                raise self._refused(error) from None
            except Exception as error:
                self._fail(error, self.length + 1)
                self.reset(seed=self.seed)

    @property
    def _where(self) -> str:
        return f"{env_id(self.env)}, slot {self._number}, seed {self.seed}"

    def _refused(self, error: Mismatch) -> Mismatch:
        return Mismatch(f"{self._where}: {error}")

    def _fail(self, error: Exception, steps: int) -> None:
        """Count a failure; ``steps`` as in `Restarts.add`. Raises `WorldError` for the episode's third."""
        self.failures += 1
        self._remake = True
        wait = self._restarts.add(self._number, self.seed, self.failures, steps, error)
        self._not_before = time.monotonic() + wait if wait else 0.0

    def _replace(self) -> None:
        with suppress(Exception):  # it may be broken
            self.env.close()
        self.env = self._make()
        self._remake = False
        if self._masks is not None:
            self._masks.bind(self.env)


def env_id(env: gymnasium.Env[Any, Any]) -> str:
    """Return the id of an environment."""
    spec = env.unwrapped.spec
    assert spec is not None
    return spec.id


def _number(info: Mapping[str, Any], name: str, env: str) -> float:
    """A number of an info, also a boolean. Raises `NoResult`."""
    if name not in info:
        raise NoResult.named(name, info, env)
    value = info[name]
    try:
        number = value if isinstance(value, bool | np.bool_) else Form(f"info[{name!r}]", (), np.float64).fit(value)
    except Mismatch as error:
        raise NoResult(str(error)) from None
    return float(number)


def _inputs(seen: Seen) -> tuple[Array, ...]:
    return seen if isinstance(seen, tuple) else (seen,)


class EnvPerSlot:
    """``slots`` environments from ``make()``, as `SlotEnv` describes them.

    A saved state holds the seed and the actions of each running episode; loading replays them. The log holds running
    episodes only.

    ``masks``: use the legal actions that the environment reports. The first reset decides whether it does: only then
    the spec is final. ``names``: numbers in the last info of an episode that are its results.
    """

    legal: Array | None = None

    def __init__(
        self,
        make: Callable[..., Any],
        slots: int,
        frame_skip: tuple[int, int] = (1, 1),
        new_env_per_episode: bool = False,
        masks: bool = True,
        names: Sequence[str] = (),
        skip_gamma: float = 1.0,
    ) -> None:
        self._names, self._discounts = tuple(names), skip_gamma != 1
        envs = [make() for _ in range(slots)]
        self._name = env_id(envs[0])
        self._restarts = Restarts(self._name, slots)
        self._slots = [
            SlotEnv(env, make, number, self._restarts, frame_skip, new_env_per_episode, masks, skip_gamma)
            for number, env in enumerate(envs)
        ]
        self._begun = False
        self._action_space = self._slots[0].action_space
        self._can_render = can_render(self._slots[0])
        self._camera_of: Callable[[], Camera] = partial(Camera, make, new_env_per_episode)
        self._camera: Camera | None = None
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
        self.cost = 0
        actions_by_slot = zip(self._slots, spaces.encode(self._action_space, actions), strict=True)
        for number, (slot, action) in enumerate(actions_by_slot):
            seen, self.reward[number], self.terminated[number], self.truncated[number], _ = slot.step(action)
            self.lengths[number] = slot.length
            self.cost += slot.cost
            if slot.broken:
                self.broken.add(number)
            else:
                self._show(number, seen)
        if self.broken:
            self._restarts.tell()

    def _show(self, number: int, seen: Seen) -> None:
        for row, new in zip(self.inputs, _inputs(seen), strict=True):
            row[number] = new
        if self.legal is not None:
            self.legal[number] = self._slots[number].legal

    def reset(self, slots: Array, seeds: list[int]) -> None:
        for number, seed in zip(slots.tolist(), seeds, strict=True):
            self._slots[number].reset(seed=seed)
        if not self._begun:
            self._declare_masks()
        for number in slots.tolist():
            self._show(number, self._slots[number].seen)
        self.lengths[slots] = 0
        self.broken.clear()
        self._restarts.tell()
        self._log.begin(slots.tolist())

    def _declare_masks(self) -> None:
        """Declare legal masks if the first states have them. Raises `Mismatch` if only some have."""
        self._begun = True
        with_masks = [slot.legal is not None for slot in self._slots]
        if any(with_masks):
            if not all(with_masks):
                number = with_masks.index(False)
                raise Mismatch(f"{self._name}, slot {number}: the state has no legal mask, unlike that of other slots")
            self.spec = replace(self.spec, masked=True)
            self.legal = empty_decisions(self.spec, len(self._slots)).legal
            for slot in self._slots:
                slot.masked = True

    def results(self, slot: int) -> dict[str, float]:
        """The named numbers in the last info of a slot, and its raw return if it was discounted within repeats.

        Raises `Mismatch` where a number is missing or none.
        """
        env = self._slots[slot]
        raw = {"return": env.total} if self._discounts else {}
        return {**raw, **{name: _number(env.info, name, self._name) for name in self._names}}

    def stop_slot(self, slot: int) -> None:
        self._slots[slot].stopped = True

    def render(self, slot: int) -> Array | None:
        if not self._can_render:
            return None
        self._camera = self._camera or self._camera_of()
        actions = spaces.encode(self._action_space, self._log.of(slot))
        env = self._slots[slot]
        taken = zip(actions, env.repeats, strict=False)  # a slot that was stopped takes no more
        return self._camera.follow(env.seed, [each for each, times in taken for _ in range(times)])

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
            if slot.replay(self._log.of(number)):
                raise WorldError(f"{self._name} cannot be resumed: replaying its actions ended an episode early")
            self.lengths[number] = slot.length
            self._show(number, slot.seen)
        self._restarts.tell()
        if any(row.tobytes() != state["inputs"][str(i)].tobytes() for i, row in enumerate(self.inputs)):
            raise WorldError(f"{self._name} cannot be resumed: replaying its actions led to another state")

    def close(self) -> None:
        for slot in self._slots:
            slot.close()
        if self._camera is not None:
            self._camera.close()
