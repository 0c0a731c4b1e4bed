"""What pairs of players are worth by the returns of their games.

Letters in shapes: K players, D draws. The two games of an episode key, with exchanged sides, count as one: what luck a
key has, both players have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.ops.student_t import t_quantile
from evorl.util import seed as seeds

Array = NDArray[np.float64]


class Returns(NamedTuple):
    """Half of what a row's player earned more in a game than a column's. All tables are antisymmetric."""

    mean: Array
    """[K, K]"""
    bounds: Array
    """[2, K, K] of the 95 % interval, by Student's t over keys."""
    drawn: Array
    """[D, K, K] as they could be as well."""
    by_chance: Array
    """[D, K, K] as they would be if one rating for each player explained all but noise."""


def returns(keys: Mapping[tuple[int, int], Array], count: int, draws: int, seed: int) -> Returns:
    """Return the payoffs of pairs i, j of ``count`` players; ``keys``: those of player i by key, two keys or more."""
    i, j = np.array([*keys]).T
    mean, error = np.array([(each.mean(), each.std(ddof=1) / np.sqrt(len(each))) for each in keys.values()]).T
    freedom = np.array([len(each) - 1 for each in keys.values()])

    def table(values: Array) -> Array:
        whole = np.zeros((*values.shape[:-1], count, count))
        whole[..., i, j], whole[..., j, i] = values, 0.0 - values  # no zero with a sign
        return whole

    def noise(purpose: str) -> Array:
        return np.asarray(error * seeds.generator(seed, purpose).standard_t(freedom, (draws, len(freedom))))

    found, reach = table(mean), error * [t_quantile(int(n)) for n in freedom]
    rating = found.mean(1)
    bounds = np.stack([table(mean - reach), table(mean + reach)])
    return Returns(
        found, np.sort(bounds, 0), table(mean + noise("returns")), table(rating[i] - rating[j] + noise("no cycles"))
    )
