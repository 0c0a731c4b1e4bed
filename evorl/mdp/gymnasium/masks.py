"""Legal actions that a gymnasium environment reports.

By the convention of sb3-contrib the environment, or one of its wrappers, has a method ``action_masks()``; by that of
PettingZoo, and of gymnasium's own Taxi, ``info["action_mask"]`` holds a mask after each reset and step. A mask has an
entry for each choice, true or 1 where it is legal. Masks of several heads lie side by side, or are a tuple of masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from evorl.mdp.core import Action, Array, first_choices, heads
from evorl.mdp.forms import Form, Mismatch

NAME = "action_mask"


class LastMasks:
    """Completes the masks of last states: after those nothing is decided, so an environment may leave heads empty."""

    def __init__(self, action: Action) -> None:
        self._sizes, self._firsts = heads(action), first_choices(action)

    def __call__(self, masks: Array) -> Array:
        """Return masks [..., L] in which a head without a choice has every one."""
        some = np.logical_or.reduceat(masks, self._firsts, axis=-1)
        return masks if some.all() else masks | ~np.repeat(some, self._sizes, axis=-1)


class LegalMasks:
    """The masks of one environment with categorical actions."""

    def __init__(self, action: Action, env: gymnasium.Env[Any, Any]) -> None:
        self._last = LastMasks(action)
        self._whole = Form("the legal mask", (sum(heads(action)),), np.bool_)
        self._heads = [Form(f"the legal mask of head {k}", (n,), np.bool_) for k, n in enumerate(heads(action))]
        self.bind(env)

    def bind(self, env: gymnasium.Env[Any, Any]) -> None:
        """Read the masks of this environment from now on."""
        method = env.get_wrapper_attr("action_masks") if env.has_wrapper_attr("action_masks") else None
        self._method: Callable[[], Any] | None = method if callable(method) else None

    def read(self, info: Any) -> Array | None:
        """Return the present mask, bool [L]; None if the environment reports none. Raises `Mismatch`."""
        reported = info.get(NAME) if isinstance(info, dict) else None
        mask = reported if self._method is None else self._method()
        return None if mask is None else self._fit(mask)

    def _fit(self, mask: Any) -> Array:
        if isinstance(mask, tuple | list) and len(mask) == len(self._heads) and all(np.ndim(part) for part in mask):
            parts = [form.fit(part) for form, part in zip(self._heads, mask, strict=True)]
            return np.concatenate(parts).astype(np.bool_)
        return self._whole.fit(mask).astype(np.bool_)

    def required(self, mask: Array | None, over: bool) -> Array:
        """Return the mask of a state of an environment that reports masks. Raises `Mismatch` if there is none.

        After the last step of an episode there may be none, or one with heads without a choice: then all of their
        choices are legal.
        """
        if not over:
            return self._whole.fit(mask)
        return np.ones(self._whole.shape, np.bool_) if mask is None else self._last(mask)


class RowMasks:
    """The masks of the B rows of a vector environment: ``infos["action_mask"]`` or `action_masks()`, [B, L].

    As in all of gymnasium's infos, ``infos["_action_mask"]`` may say which rows have one.
    """

    def __init__(self, action: Action, env: VectorEnv[Any, Any, Any], slots: int) -> None:
        self._last = LastMasks(action)
        self._form = Form("the legal mask", (sum(heads(action)),), np.bool_)
        method = getattr(env.unwrapped, "action_masks", None)
        self._method = method if callable(method) else None
        self._slots = slots

    def read(self, infos: dict[str, Any]) -> tuple[Array, Array] | None:
        """Return the masks, bool [B, L], and which rows have one, bool [B]; None if none is reported."""
        mask = infos.get(NAME) if self._method is None else self._method()
        if mask is None:
            return None
        present = np.ones(self._slots, np.bool_)
        if self._method is None and f"_{NAME}" in infos:
            present = np.asarray(infos[f"_{NAME}"], np.bool_)
        return self._form.fit(mask, (self._slots,)).astype(np.bool_), present

    def update(self, legal: Array, infos: dict[str, Any], rows: Array, over: Array) -> None:
        """Write the masks of these rows, bool [B], into ``legal`` [B, L]. Raises `Mismatch` for a row without one.

        As `LegalMasks.required`, for the rows that are ``over`` [B].
        """
        masks, present = self.read(infos) or (np.ones_like(legal), np.zeros(self._slots, np.bool_))
        for row in np.flatnonzero(rows & ~present & ~over):
            raise Mismatch(f"row {row} has no legal mask, unlike its first state")
        legal[rows] = masks[rows]
        if (ended := rows & over).any():
            legal[ended] = self._last(masks[ended] & present[ended, None])

    def final(self, infos: dict[str, Any], ended: Array) -> Array:
        """Return the masks [len(ended), L] of the last states of these rows, in same-step reset mode."""
        final_info = infos.get("final_info")
        mask = self.read(final_info) if isinstance(final_info, dict) and self._method is None else None
        masks, present = mask or (np.zeros((self._slots, *self._form.shape), np.bool_), np.zeros(self._slots, np.bool_))
        return self._last(masks[ended] & present[ended, None])
