"""Gymnasium vector environments: all slots are rows of one environment.

`SeededRowsEngine` plays those whose ``reset_mask`` resets each row with a seed of its own: episodes are independent,
and each slot plays its own keys. The others are in `evorl.mdp.gymnasium.shared_generator`.

Letters in shapes: B slots.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from evorl.mdp.action_log import ActionLog
from evorl.mdp.core import Action, Array, Box, EpisodeFailed, Spec, WorldError, first_choices, heads
from evorl.mdp.decision_arrays import action_format, empty_decisions
from evorl.mdp.forms import Form, Mismatch
from evorl.mdp.gymnasium import spaces
from evorl.mdp.gymnasium.camera import Camera
from evorl.mdp.gymnasium.masks import RowMasks
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

_REWARD, _TERMINATED, _TRUNCATED = (
    Form("the reward", (), np.float64),
    Form("terminated", (), np.bool_),
    Form("truncated", (), np.bool_),
)


class VectorEnvRows:
    """A vector environment with evorl's spaces. `inputs` holds the last observation of every row.

    ``limit`` truncates an episode after that many steps, in addition to the environment's own limits. ``masks``: use
    the legal actions that the environment reports. The first reset decides whether it does: then the spec is final.
    """

    legal: Array | None = None  # bool [B, L]

    def __init__(self, env: VectorEnv[Any, Any, Any], slots: int, limit: int | None, masks: bool = True) -> None:
        self.env, self.slots, self.limit = env, slots, limit
        self.mode = AutoresetMode(env.metadata["autoreset_mode"])
        self.spec, self._read = spaces.spec_of(env.single_observation_space, env.single_action_space)
        self.inputs = empty_decisions(self.spec, slots).inputs
        self.lengths = np.zeros(slots, np.int64)
        self.masks = RowMasks(self.spec.action, env, slots) if masks and heads(self.spec.action) else None
        self._begun = False

    def reset(self, seed: Any, mask: Array) -> None:
        """Start the episodes of the masked rows. ``seed``: one for all, one per row, or None to continue."""
        all_rows = mask.all()
        before = [row[~mask].tobytes() for row in self.inputs]
        with self._named(WorldError):
            seen, infos = self.env.reset(seed=seed, options=None if all_rows else {"reset_mask": mask.copy()})
            self._show(seen)
            if not self._begun and self.masks is not None and self.masks.read(infos) is not None:
                self.spec = replace(self.spec, masked=True)
                self.legal = empty_decisions(self.spec, self.slots).legal
            self._begun = True
            self._see_masks(infos, mask, np.zeros(self.slots, bool))
        if before != [row[~mask].tobytes() for row in self.inputs]:
            raise WorldError(f"{env_name(self.env)} does not heed reset_mask: it changed other rows as well")

    def step(self, actions: Array) -> tuple[Array, Array, Array, dict[str, Any]]:
        """Step with actions [B, K]; return rewards, terminations and truncations [B], and infos. Updates `inputs`."""
        return self.act(spaces.encode_all(self.env.single_action_space, actions))

    def act(self, actions: Any) -> tuple[Array, Array, Array, dict[str, Any]]:
        """Step with actions in the environment's own form."""
        with self._named(EpisodeFailed):
            seen, reward, terminated, truncated, infos = self.env.step(actions)
            self._show(seen)
            batch = (self.slots,)
            reward = _REWARD.fit(reward, batch)
            terminated, truncated = _TERMINATED.fit(terminated, batch), _TRUNCATED.fit(truncated, batch)
        self.lengths += 1
        terminated = np.array(terminated, bool)
        late = np.zeros(self.slots, bool) if self.limit is None else self.lengths >= self.limit
        truncated = (np.asarray(truncated, bool) | late) & ~terminated
        same_step = self.mode is AutoresetMode.SAME_STEP  # the masks are of the states after a reset
        with self._named(EpisodeFailed):
            self._see_masks(infos, np.ones(self.slots, bool), (terminated | truncated) & ~same_step)
        return np.array(reward, np.float64), terminated, truncated, infos

    def _see_masks(self, infos: dict[str, Any], rows: Array, over: Array) -> None:
        if self.masks is not None and self.legal is not None:
            self.masks.update(self.legal, infos, rows, over)

    def _show(self, seen: Any) -> None:
        for row, read in zip(self.inputs, self._read, strict=True):
            row[:] = read(seen, (self.slots,), watch=env_name(self.env))

    def final(self, infos: dict[str, Any], ended: Array) -> list[Array]:
        """Return the last observations of the rows whose episodes ended, [len(ended), ...] per input, in same-step
        reset mode.

        Gymnasium gives an object array of observations or a batch; rows that did not end are undefined.
        """
        seen = infos["final_obs"]
        with self._named(EpisodeFailed):
            if not isinstance(seen, np.ndarray) or seen.dtype != object:
                return [np.asarray(read(seen, rows=ended)) for read in self._read]
            return [np.stack([read(seen[slot]) for slot in ended]) for read in self._read]

    @contextmanager
    def _named(self, kind: type[WorldError]) -> Iterator[None]:
        """Turn any error of the environment into one of this kind: all rows share it, so no episode starts again."""
        try:
            yield
        except Mismatch as error:
            raise Mismatch(f"{env_name(self.env)}, all {self.slots} slots in one environment: {error}") from None
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            raise kind(f"{env_name(self.env)}, all {self.slots} slots in one environment:\n{trace}") from error


def env_name(env: VectorEnv[Any, Any, Any]) -> str:
    spec = env.unwrapped.spec
    return type(env).__name__ if spec is None else spec.id


# ------------------------------------------------------------------ a seed for each row


class SeededRowsEngine:
    """The `Lockstep` engine for rows with seeds of their own. A state holds seeds and actions; loading replays them.

    ``film()`` returns the camera that draws an episode from its seed and actions, or None.
    """

    def __init__(self, rows: VectorEnvRows, film: Callable[[], Camera | None] = lambda: None) -> None:
        self._film: Callable[[], Camera | None] | None = film  # until the first picture
        self._camera: Camera | None = None
        self._reads: list[spaces.Read] = []  # convert the camera's observations, if they have this engine's inputs
        self._rows, self.inputs, self.lengths = rows, rows.inputs, rows.lengths
        self.reward = np.zeros(rows.slots)
        self.terminated = self.truncated = np.zeros(rows.slots, bool)
        self.cost = 0
        self.broken: set[int] = set()
        self._seeds = [0] * rows.slots
        self._log = ActionLog(rows.spec.action, rows.slots)

    @property
    def spec(self) -> Spec:
        return self._rows.spec

    @property
    def legal(self) -> Array | None:
        return self._rows.legal

    def step(self, actions: Array) -> None:
        self._log.append(actions)
        self.reward, self.terminated, self.truncated, _ = self._rows.step(actions)
        self.cost = self._rows.slots

    def reset(self, slots: Array, seeds: list[int]) -> None:
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            self._seeds[slot] = seed
        self._begin(np.isin(np.arange(self._rows.slots), slots))
        self._log.begin(slots.tolist())

    def _begin(self, mask: Array) -> None:
        self._rows.reset(list(self._seeds), mask)
        self.lengths[mask] = 0

    def stop_slot(self, slot: int) -> None:
        """All rows step together."""

    def render(self, slot: int) -> Array | None:
        """Draw the slot's episode in another environment. Raises `BadRequest` if the episode differs there."""
        if self._film is not None:
            self._camera, self._film = self._film(), None
            self._reads = [] if self._camera is None else self._readable(self._camera.env)
        if self._camera is None:
            return None
        log, camera = self._log.of(slot), self._camera
        if self._reads:
            picture = camera.follow(self._seeds[slot], spaces.encode(camera.env.action_space, log))
            batch = (1,) if isinstance(camera.env, SingleRowEnv) else ()
            shown = [(read(camera.seen, batch), row) for read, row in zip(self._reads, self.inputs, strict=True)]
            if all(seen.astype(row.dtype).tobytes() == row[slot].tobytes() for seen, row in shown):
                return picture
        raise BadRequest(
            f"there is no film of {env_name(self._rows.env)}: its vector environment draws nothing, and its ordinary "
            f"environment plays another episode ({len(log)} decisions after the same seed)"
        )

    def _readable(self, env: Any) -> list[spaces.Read]:
        """Return the readers of another environment's observations; empty if its inputs differ."""
        spec, reads = spaces.spec_of(env.observation_space, env.action_space)
        return reads if replace(spec, masked=self.spec.masked) == self.spec else []

    def state_dict(self) -> StateDict:
        inputs = {str(i): row.copy() for i, row in enumerate(self.inputs)}
        return {"seeds": list(self._seeds), **self._log.state_dict(), "inputs": inputs}

    def load_state_dict(self, state: StateDict) -> None:
        """Replay. Each episode starts at its old offset from the others; before that its row takes any legal actions.

        Raises `WorldError` if the replay reaches another state.
        """
        self._seeds = list(state["seeds"])
        self._log.load_state_dict(state)
        begins = len(self._log) - np.asarray(state["lengths"])
        self._begin(np.ones(self._rows.slots, bool))
        for time, actions in enumerate(self._log.rows(default_action(self.spec.action))):
            if time and (due := begins == time).any():
                self._begin(due)
            if self.legal is not None:
                actions = np.where((begins <= time)[:, None], actions, first_legal(self.spec.action, self.legal))
            _, terminated, truncated, _ = self._rows.step(actions)
            over = terminated | truncated
            if over[begins <= time].any():
                raise WorldError(f"{env_name(self._rows.env)} cannot be resumed: its actions ended an episode early")
            if over.any():
                self._begin(over)
        if (due := begins == len(self._log)).any():
            self._begin(due)
        if any(row.tobytes() != state["inputs"][str(i)].tobytes() for i, row in enumerate(self.inputs)):
            raise WorldError(
                f"{env_name(self._rows.env)} cannot be resumed: replaying its actions led to another state"
            )

    def close(self) -> None:
        self._rows.env.close()
        if self._camera is not None:
            self._camera.close()


class SingleRowEnv(gymnasium.Env[Any, Any]):
    """A vector environment of one row as an ordinary environment; observations keep their batch axis of 1."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._rows: Any = env  # its types allow no list of seeds
        self.spec = env.spec
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seen, infos = self._rows.reset(seed=[seed], options=options)
        return seen, infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, infos = self._rows.step(np.asarray(action)[None])
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), infos

    def render(self) -> Any:
        pictures = self._rows.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        self._rows.close()


def first_legal(action: Action, legal: Array) -> Array:
    """Return the first legal choice of each head [B, K] by masks [B, L]."""
    masks = np.split(legal, first_choices(action)[1:], axis=1)
    return np.stack([mask.argmax(1) for mask in masks], 1).astype(action_format(action)[0])


def default_action(action: Action) -> Array:
    """Return a valid action [K]: zeros, clipped to the bounds."""
    dtype, width = action_format(action)
    if isinstance(action, Box):
        return np.clip(np.zeros(width), action.low, action.high).astype(dtype)
    return np.zeros(width, dtype)
