"""Tests of an environment's abilities. Those of a vector environment play two rows of it for a few steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from evorl.mdp.action_log import copied
from evorl.mdp.core import WorldError, heads
from evorl.mdp.forms import Mismatch
from evorl.mdp.gymnasium import snapshot, spaces
from evorl.mdp.gymnasium.masks import LegalMasks
from evorl.mdp.gymnasium.vector_env import VectorEnvRows
from evorl.mdp.random_play import random_action
from evorl.util.seed import generator

Make = Callable[[int], VectorEnv[Any, Any, Any]]
STEPS = 24


class NotResumable(ValueError):
    """An environment cannot be saved and resumed; the message says why."""


def reports_masks(make: Callable[[], Any]) -> bool:
    """Return whether an environment reports legal actions: its first state decides, as in a run.

    Yes for one that fails at its start.
    """
    with closing(make()) as env:
        action = spaces.action(env.action_space)
        if not heads(action):
            return False
        masks = LegalMasks(action, env)
        try:
            return masks.read(env.reset(seed=0)[1]) is not None
        except Exception:
            return True  # the run will report it


def rows_are_independent(make: Make, masks: bool) -> bool:
    """Return whether a row's episode depends on its seed and actions only. ``masks``: play legal actions alone.

    Plays the first row twice with the same seed, beside different episodes of the second row.
    """
    first, second = (_first_row_beside(make, masks, other_seed) for other_seed in (1, 2))
    return first is not None and first == second


def _first_row_beside(make: Make, masks: bool, other_seed: int) -> list[bytes] | None:
    """Return all observations of the first row; None if rows cannot be seeded one by one."""
    with closing(make(2)) as env:
        rows = VectorEnvRows(env, 2, None, masks)
        if rows.mode is not AutoresetMode.DISABLED:
            return None
        try:
            rows.reset([7, other_seed], np.ones(2, bool))
            seen = [_bytes(rows, 0)]
            for time in range(STEPS):
                _, terminated, truncated, _ = rows.act(_actions(rows, time))
                over = terminated | truncated
                seen.append(_bytes(rows, 0))
                over[1] |= time % 3 == other_seed
                if over.any():
                    rows.reset([time, 100 * other_seed + time], over)
                seen.append(_bytes(rows, 0))
        except Mismatch:
            raise
        except WorldError:  # from simulators that take one seed for all rows
            return None
        return seen


def check_resumable(make: Make, masks: bool) -> None:
    """Raise `NotResumable` unless a second environment continues identically from the saved state of the first."""
    with closing(make(2)) as env, closing(make(2)) as copy:
        first, second = VectorEnvRows(env, 2, None, masks), VectorEnvRows(copy, 2, None, masks)
        first.reset(11, np.ones(2, bool))
        second.reset(12, np.ones(2, bool))
        for time in range(STEPS // 3):
            _step(first, _actions(first, time))
        try:
            snapshot.restore(copy, snapshot.save(env))
        except snapshot.NotPlainData as error:
            raise NotResumable(f"{error}, which is no plain data") from error
        for time in range(STEPS // 3, STEPS):
            actions = _actions(first, time)  # the copy has had no mask yet since it was restored
            if _step(first, actions) != _step(second, actions):
                raise NotResumable("its attributes are not all of its state: a restored copy continued differently")


def _step(rows: VectorEnvRows, actions: Any) -> list[bytes]:
    """Step, and reset ended rows if autoreset is disabled; return everything observed, as bytes."""
    reward, terminated, truncated, _ = rows.act(copied(actions))
    outcome = [reward.tobytes(), terminated.tobytes(), truncated.tobytes(), _bytes(rows)]
    over = terminated | truncated
    if over.any() and rows.mode is AutoresetMode.DISABLED:
        rows.reset(None, over)
    return [*outcome, _bytes(rows)]


def _bytes(rows: VectorEnvRows, row: Any = slice(None)) -> bytes:
    return b"".join(x[row].tobytes() for x in rows.inputs)


def _actions(rows: VectorEnvRows, time: int) -> Any:
    """Return random legal actions of both rows in the environment's own form: each row's depend on its mask alone."""
    masks = [None] * rows.slots if rows.legal is None else rows.legal
    each = [random_action(rows.spec, mask, generator("probe", time, row)) for row, mask in enumerate(masks)]
    return spaces.encode_all(rows.env.single_action_space, np.stack(each))
