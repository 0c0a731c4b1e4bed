"""Who plays whom: weights of opponents by how often the learner beats them.

Letters in shapes: N opponents. A score is the probability that the learner beats an opponent, a draw counting one half.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weighting = Literal["hard", "even", "capped"]
UNPLAYED = 0.5
"""Score against an opponent before the first game."""


def pfsp(score: Array, weighting: Weighting = "hard", power: float = 2.0) -> Array:
    """Return the probabilities [N] of opponents in prioritised fictitious self-play; uniform where all weights are 0.

    Vinyals et al. 2019, Grandmaster level in StarCraft II, Methods. With score x, ``hard`` is (1 - x)^power: who wins
    most is met most. ``even`` is x (1 - x): who is as strong as the learner. ``capped``, of the pseudocode that goes
    with the paper, is min(1/2, 1 - x). Raises ValueError for scores outside of [0, 1] and for no opponent.
    """
    if not len(score) or not ((score >= 0) & (score <= 1)).all():
        raise ValueError(f"scores must lie in [0, 1], and there must be one: {score}")
    match weighting:
        case "hard":
            weight = (1 - score) ** power
        case "even":
            weight = score * (1 - score)
        case "capped":
            weight = np.minimum(0.5, 1 - score)
    total = weight.sum()
    return weight / total if total > 0 else np.full(len(score), 1 / len(score))
