"""What a vector environment can do, found out by playing two rows of it for a moment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from evorl.mdp.core import WorldError
from evorl.mdp.gymnasium import snapshot
from evorl.mdp.gymnasium.vector_env import Rows

Make = Callable[[int], VectorEnv[Any, Any, Any]]
STEPS = 24


class Unrepeatable(ValueError):
    """Why an environment cannot be saved and resumed."""


def own(make: Make) -> bool:
    """Whether an episode of a row is its seed and its actions alone: one is played twice, in different company."""
    one, other = (_in_company(make, company) for company in (1, 2))
    return one is not None and one == other


def _in_company(make: Make, company: int) -> list[bytes] | None:
    """All of the first row while the second plays other episodes; None where there is no seed for each row."""
    with closing(make(2)) as env:
        rows = Rows(env, 2, None)
        if rows.mode is not AutoresetMode.DISABLED:
            return None
        try:
            rows.reset([7, company], np.ones(2, bool))
            seen = [_bytes(rows, 0)]
            for time, actions in enumerate(_actions(rows)):
                _, terminated, truncated, _ = rows.act(actions)
                over = terminated | truncated
                seen.append(_bytes(rows, 0))
                over[1] |= time % 3 == company
                if over.any():
                    rows.reset([time, 100 * company + time], over)
                seen.append(_bytes(rows, 0))
        except WorldError:  # whatever a simulator does that takes one seed for all rows
            return None
        return seen


def check_saved(make: Make) -> None:
    """Raise `Unrepeatable` unless an environment goes on from another's saved state as that one does."""
    with closing(make(2)) as env, closing(make(2)) as copy:
        one, other = Rows(env, 2, None), Rows(copy, 2, None)
        one.reset(11, np.ones(2, bool))
        other.reset(12, np.ones(2, bool))
        actions = _actions(one)
        for each in actions[: STEPS // 3]:
            _go(one, each)
        try:
            snapshot.restore(copy, snapshot.save(env))
        except snapshot.Unsavable as error:
            raise Unrepeatable(f"{error}, no plain data") from error
        if any(_go(one, each) != _go(other, each) for each in actions[STEPS // 3 :]):
            raise Unrepeatable("its attributes are not all of it: put into another one, they led elsewhere")


def _go(rows: Rows, actions: Any) -> list[bytes]:
    """A step, and the resets that follow it where the environment leaves them to us, as all that it told."""
    reward, terminated, truncated, _ = rows.act(actions)
    told = [reward.tobytes(), terminated.tobytes(), truncated.tobytes(), _bytes(rows)]
    over = terminated | truncated
    if over.any() and rows.mode is AutoresetMode.DISABLED:
        rows.reset(None, over)
    return [*told, _bytes(rows)]


def _bytes(rows: Rows, row: Any = slice(None)) -> bytes:
    return b"".join(x[row].tobytes() for x in rows.inputs)


def _actions(rows: Rows) -> list[Any]:
    """Random actions of both rows, as the environment takes them; always the same ones."""
    rows.env.action_space.seed(0)
    return [rows.env.action_space.sample() for _ in range(STEPS)]
