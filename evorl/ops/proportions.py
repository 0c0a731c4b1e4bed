"""Wilson's interval of a share of successes (Wilson 1927, Probable inference, the law of succession)."""

from __future__ import annotations

import math

Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def wilson(successes: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Return the lower and upper bound of a probability after ``successes`` of ``n`` independent trials.

    A draw may count as half a success: the interval is then wider than it need be. Without trials it is (0, 1).
    Raises ValueError unless 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and {n:g} trials, got {successes:g}")
    if n == 0:
        return 0.0, 1.0
    share, spread = successes / n, z * z / n
    centre = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))
