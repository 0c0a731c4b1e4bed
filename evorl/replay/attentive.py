"""Attentive sampling of transitions (Sun, Zhou & Li 2020, "Attentive Experience Replay", AAAI, doi
10.1609/aaai.v34i04.6049).

Of lambda times as many transitions as are asked for, drawn evenly, those are chosen whose states are the most similar
to the one that the agent is in. Lambda falls to 1, where sampling is uniform. The rule for whole rollouts is in
`evorl.replay.parts.attentive`.

Letters in shapes: M transitions, F numbers of a state's vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evorl.replay.parts.core import annealed, draw
from evorl.replay.parts.distances import distance
from evorl.replay.storage import Array, Numbers
from evorl.util import seed as seeds
from evorl.util.types import AtLeastOne, Count


@dataclass(frozen=True, kw_only=True)
class AttentiveKeys:
    """Keys of attentive sampling."""

    candidates: AtLeastOne = 4.0
    """Transitions drawn for each one that is chosen, at first (lambda)."""
    anneal: Count = 100_000
    """Gradient steps until it is 1."""
    distance: Literal["cosine", "p_norm"] = "cosine"
    """How far states are apart: 1 - their cosine, or the Euclidean norm of their difference."""

    def factor(self, step: int) -> float:
        """Candidates for each transition at a gradient step."""
        return annealed(self.candidates, step, self.anneal)


def attentive(
    key: int,
    step: int,
    size: int,
    low: int,
    high: int,
    now: int,
    keys: AttentiveKeys,
    vectors: Callable[[Numbers], Array],
) -> Numbers:
    """Choose numbers [size] from [low, high): those of the candidates nearest to the state of transition ``now``.

    ``vectors``: of the states that transitions [M] began in, [M, F]. The choice is a function of all that is given. No
    number is chosen twice while there are enough.
    """
    held = high - low
    drawn = low + draw(seeds.generator(key, step), held, max(min(int(keys.factor(step) * size), held), size))
    if len(drawn) == size:
        return drawn
    found = vectors(np.append(drawn, now))[:, None]
    far = distance(keys.distance, 2.0)(found[:-1], np.broadcast_to(found[-1:], found[:-1].shape))
    return drawn[far.argsort(kind="stable")[:size]]
