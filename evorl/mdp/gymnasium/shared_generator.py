"""Vector environments with one generator for all rows.

An episode's random numbers depend on when the others end. So the environment is seeded once, with the first slot's
first key, and its whole state is saved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from evorl.mdp.core import Array, Closes, Decisions, EpisodeEndHook, StepLimit, StepsTogether
from evorl.mdp.decision_arrays import empty_decisions
from evorl.mdp.gymnasium import snapshot
from evorl.mdp.gymnasium.camera import can_render, rendered
from evorl.mdp.gymnasium.vector_env import VectorEnvRows, default_action, env_name
from evorl.util.seed import Episodes, seed31
from evorl.util.types import StateDict


class SharedGeneratorArena(EpisodeEndHook, StepLimit, StepsTogether, Closes):
    """The `Arena` of an environment whose rows share one generator. Its state is the environment's whole state.

    If the environment resets an ended row in the next step, that row makes no decision in that step: it waits again
    one step after the others. The results of an episode are its raw "return" and its "length".

    An episode that is cut by a limit of steps (`StepLimit`) goes on in an environment that resets itself, where the
    next one begins.
    """

    sides = 1

    def __init__(
        self, rows: VectorEnvRows, episodes: Episodes, shape: Callable[[Array], Array], draw: Callable[[], Any]
    ) -> None:
        self.slots = rows.slots
        self._rows, self._shape, self._draw = rows, shape, draw
        self._render_env: VectorEnv[Any, Any, Any] | None = None
        self._returns, self._number = np.zeros(rows.slots), np.zeros(rows.slots, np.int64)
        self._resetting = np.zeros(rows.slots, bool)  # rows whose next step is a reset and belongs to no episode
        self._answered = np.zeros(rows.slots, bool)
        self._actions = np.tile(default_action(rows.spec.action), (rows.slots, 1))
        self._results: dict[int, dict[str, float]] = {}  # results of ended episodes whose slots do not wait yet
        rows.reset(seed31(int(episodes(0, 0))), np.ones(rows.slots, bool))
        self.spec, shown = rows.spec, empty_decisions(rows.spec, rows.slots)
        self._decisions = replace(shown, slots=np.arange(rows.slots), inputs=rows.inputs, legal=rows.legal)

    def send(self, slots: Array, actions: Array) -> None:
        self._actions[slots] = actions
        self._answered[slots] = True

    def recv(self) -> Decisions:
        if self._answered.any():
            if not self._answered[self._decisions.slots].all():
                raise ValueError("all waiting slots of one environment must be answered together")
            self._answered[:] = False
            self._advance()
        return self._decisions

    def _advance(self) -> None:
        """Step until at least one slot waits."""
        decisions = self._decisions
        decisions.cost = 0
        self._step()
        while self._resetting.all():
            self._step()
        decisions.slots = np.flatnonzero(~self._resetting)
        ended = [slot for slot in decisions.slots.tolist() if slot in self._results]
        decisions.results = [(slot, self._results.pop(slot)) for slot in ended]

    def _step(self) -> None:
        rows, decisions, live = self._rows, self._decisions, ~self._resetting
        reward, terminated, truncated, infos = rows.step(self._actions)
        rows.lengths[~live] = 0
        self._returns[live] += reward[live]
        decisions.reward[live, 0] = self._shape(reward)[live]
        decisions.terminated[live], decisions.truncated[live] = terminated[live], truncated[live]
        decisions.cost += int(live.sum())
        ended = live & (decisions.terminated | decisions.truncated)
        self._resetting[:] = ended & (rows.mode is AutoresetMode.NEXT_STEP)
        late = np.zeros(self.slots, bool)
        if self.step_limit is not None:
            late = live & ~ended & (rows.lengths >= self.step_limit)
            decisions.truncated |= late
            self.cut += tuple((slot, int(self._number[slot])) for slot in np.flatnonzero(late).tolist())
        for rows_ended, same_step in ((ended, rows.mode is AutoresetMode.SAME_STEP), (late, False)):
            if rows_ended.any():
                self._end(np.flatnonzero(rows_ended), infos, same_step)
        rows.lengths[late] = 0

    def _end(self, ended: Array, infos: dict[str, Any], same_step: bool) -> None:
        """``same_step``: the rows have been reset, and their last states are in ``infos``."""
        rows, decisions = self._rows, self._decisions
        for slot in ended.tolist():
            self._results[slot] = {"return": float(self._returns[slot]), "length": float(rows.lengths[slot])}
        self._returns[ended] = 0.0
        self._number[ended] += 1
        finals = rows.final(infos, ended) if same_step else [row[ended] for row in rows.inputs]
        for final, seen in zip(decisions.final, finals, strict=True):
            final[ended] = seen
        if decisions.final_legal is not None and rows.legal is not None and rows.masks is not None:
            decisions.final_legal[ended] = rows.masks.final(infos, ended) if same_step else rows.legal[ended]
        if not same_step:
            self._notify_episode_end()
        if rows.mode is AutoresetMode.DISABLED:
            rows.reset(None, np.isin(np.arange(rows.slots), ended))
        if rows.mode is not AutoresetMode.NEXT_STEP:
            rows.lengths[ended] = 0

    def render(self, slot: int = 0) -> Array | None:
        """Draw in a second environment that is put into this one's state."""
        if not can_render(self._rows.env):
            return None
        if self._render_env is None:
            self._render_env = self._draw()
            self._render_env.reset(seed=0)
        snapshot.restore(self._render_env, snapshot.save(self._rows.env))
        pictures = rendered(self._render_env, env_name(self._rows.env))
        return None if pictures is None else np.ascontiguousarray(pictures[slot])

    def state_dict(self) -> StateDict:
        decisions = self._decisions
        return {
            "world": snapshot.save(self._rows.env),
            "results": {str(slot): dict(result) for slot, result in self._results.items()},
            **{name: array.copy() for name, array in self._arrays().items()},
            **{f"input {i}": row.copy() for i, row in enumerate(decisions.inputs)},
            **{f"final {i}": row.copy() for i, row in enumerate(decisions.final)},
        }

    def _arrays(self) -> dict[str, Array]:
        decisions = self._decisions
        masks = {"legal": decisions.legal, "final legal": decisions.final_legal}
        return {
            **{name: mask for name, mask in masks.items() if mask is not None},
            "returns": self._returns, "lengths": self._rows.lengths, "resetting": self._resetting,
            "actions": self._actions, "reward": decisions.reward,
            "terminated": decisions.terminated, "truncated": decisions.truncated,
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state. Raises ValueError if it has another number of slots."""
        if len(state["returns"]) != self.slots:
            raise ValueError(f"the state is of {len(state['returns'])} slots, the arena has {self.slots}")
        snapshot.restore(self._rows.env, state["world"])
        decisions = self._decisions
        kept = self._arrays() | {f"input {i}": row for i, row in enumerate(decisions.inputs)}
        for name, array in (kept | {f"final {i}": row for i, row in enumerate(decisions.final)}).items():
            array[:] = state[name]
        self._results = {int(slot): dict(result) for slot, result in state["results"].items()}
        self._answered[:] = False
        waiting = ~self._resetting
        decisions.reward[waiting], decisions.terminated[waiting], decisions.truncated[waiting] = 0, False, False
        decisions.slots, decisions.results, decisions.cost = np.flatnonzero(waiting), [], 0

    def close(self) -> None:
        for env in (self._rows.env, self._render_env):
            if env is not None:
                env.close()
