"""Who decides for which slot while many pairs play at once, under which noise.

Letters in shapes: B slots, A noise components of a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Action, Array, Box, Spec
from evorl.nets.distributions import noise_size
from evorl.rl.core import Decision
from evorl.rl.frozen_policies import FrozenPolicies
from evorl.rl.network_learner import NetworkLearner
from evorl.util import seed as seeds
from evorl.util.seed import Episodes, Keys

AHEAD = 64
"""Decisions of a slot whose noise is drawn at once."""


class Seats:
    """The policies of all seats as one acting side: each form of network decides in one pass for the seats it has."""

    def __init__(self, spec: Spec, seats: Sequence[tuple[NetworkLearner[Any], Array]]) -> None:
        """``seats``: an example of each form, and the slots of its seats [seats, rows]."""
        self.spec = spec
        self.forms = [FrozenPolicies(example, len(slots)) for example, slots in seats]
        self._slots = [torch.from_numpy(slots.reshape(-1)) for _, slots in seats]
        self._place = torch.cat(self._slots).argsort()  # where each slot stands among those of all forms

    def put(self, form: int, place: int, weights: Sequence[Tensor]) -> None:
        self.forms[form].put(place, weights)

    def carry(self, slots: int) -> Tensor | None:
        """The recurrent states side by side; those of a smaller core leave the rest 0."""
        each = [x for form in self.forms if (x := form.carry(slots)) is not None]
        return max(each, key=lambda x: x.shape[-1]) if each else None

    def act(
        self,
        inputs: tuple[Tensor, ...],
        legal: Tensor | None,
        noise: Tensor,
        carry: Tensor | None,
        start: Tensor | None,
    ) -> Decision:
        after = None if carry is None else carry.clone()
        seats = []
        for form, slots in zip(self.forms, self._slots, strict=True):
            own = form.carry(len(slots)) if carry is not None else None
            memory = None if own is None or carry is None else carry[:, slots, : own.shape[-1]]
            begins = None if memory is None or start is None else start[slots]
            masks = None if legal is None else legal[slots]
            rows = tuple(x.index_select(0, slots) for x in inputs)
            decision = form.act(rows, masks, noise.index_select(0, slots), memory, begins)
            seats.append(decision.played)
            if after is not None and decision.carry is not None:
                after[:, slots, : decision.carry.shape[-1]] = decision.carry
        played = (seats[0] if len(seats) == 1 else torch.cat(seats)).index_select(0, self._place)
        nothing = torch.zeros(len(noise))
        return Decision(played, played, nothing, nothing[:, None], after)


@dataclass(frozen=True)
class MatchKeys(Episodes):
    """The keys of games by their numbers, the same for every pair. Games 2k and 2k + 1 have the same key.

    Game slot h plays the numbers h, h + H, ... from ``first`` on, and begins again after ``rounds`` of them. With
    ``stride`` 2 it plays every second number, from ``first`` on.
    """

    first: int = 0
    rounds: int = 1
    width: int = 1
    """H, game slots of a pair."""
    stride: int = 1

    def number(self, game: Any, episode: Any) -> Any:
        """The numbers of the games that game slots play as their episodes."""
        return self.first + self.stride * (game % self.width + self.width * (episode % self.rounds))

    def __call__(self, slot: Any, episode: Any) -> Keys:
        return super().__call__(self.number(np.asarray(slot), np.asarray(episode)) // 2, 0)


class MatchNoise:
    """Noise keyed by the number of a game, its side and the decision: the same for every pair, and for games 2k and
    2k + 1."""

    def __init__(self, action: Action, seed: int, deterministic: bool, slots: int) -> None:
        self.action, self.deterministic = action, deterministic
        self._keys = Episodes(seed, "match noise", evaluation=True)
        self._ahead = np.zeros((slots, AHEAD, noise_size(action)), np.float32)
        self._flat = self._ahead.reshape(slots * AHEAD, -1)
        self._noise = torch.zeros(slots, noise_size(action))

    def take(self, rows: Array, decisions: Array, number: Callable[[Array], Array], sides: Array) -> Tensor:
        """Return noise [B, A] with that of ``rows``, whose numbers of decisions are ``decisions`` [len(rows)].

        ``number`` gives the games of slots, ``sides`` [B] their sides.
        """
        if not self.deterministic:
            within = decisions % AHEAD
            if (begin := within == 0).any():
                slots = rows[begin]
                keys = self._keys(number(slots) // 2, sides[slots])
                self._ahead[slots] = keyed_noise(self.action, keys, decisions[begin], AHEAD)
            self._noise.numpy()[rows] = self._flat.take(rows * AHEAD + within, 0)
        return self._noise


def keyed_noise(action: Action, keys: Keys, first: Array, count: int) -> Array:
    """Noise float32 [n, count, A] of the decisions from ``first`` [n] on, of streams with these keys [n].

    As `evorl.nets.distributions.draw_noise`: standard Gumbel for categorical heads, standard normal for a Box.
    """
    size = noise_size(action)
    counters = first[:, None].astype(np.uint64) * np.uint64(size) + np.arange(count * size, dtype=np.uint64)
    drawn = seeds.uniform(keys[:, None], counters).clip(2.0**-54).reshape(len(keys), count, size)
    from scipy.special import ndtri  # here: it takes half a second, which every training run would wait for

    noise = ndtri(drawn) if isinstance(action, Box) else -np.log(-np.log(drawn))
    return np.asarray(noise, np.float32)
