"""The rule that tells a right implementation from a wrong one, fixed before the runs of profile=ci.

All gates are for the small network (64-64, batch 100, learning rate 1e-3). The thresholds come from one run of each
algorithm of an independent implementation, and from the curves of TD3's authors. Of algorithms or worlds without such a
reference no gate is made.
"""

from __future__ import annotations

import numpy as np

from benchmarks.aes_rl.family import UNTRAINED
from evorl.analysis.aggregates import iqm
from evorl.reproduction.scores import Floats
from evorl.reproduction.verdicts import Gate


def share_above(values: Floats, threshold: float) -> float:
    """The share of seeds at or above a threshold."""
    return float(np.mean(values >= threshold))


HALFCHEETAH = [
    Gate("TD3: at least 1200 at 30,000 steps in the majority of seeds", ("TD3",),
         lambda td3: share_above(td3[30_000], 1200) > 0.5, (30_000,)),
    Gate("TD3: at least 1800 at 40,000 steps in the majority of seeds", ("TD3",),
         lambda td3: share_above(td3[40_000], 1800) > 0.5, (40_000,)),
    Gate("AES-RL: at least 1500 at 40,000 steps in two thirds of the seeds", ("AES-RL",),
         lambda aes: share_above(aes[40_000], 1500) >= 2 / 3, (40_000,)),
    Gate("AES-RL: at least 0.6 of TD3 at 40,000 steps (interquartile means)", ("AES-RL", "TD3"),
         lambda aes, td3: iqm(aes[40_000]) >= 0.6 * iqm(td3[40_000]), (40_000,)),
    Gate("CEM-RL: above 300 at 50,000 steps (interquartile mean)", ("CEM-RL",),
         lambda cem: iqm(cem[50_000]) > 300, (50_000,)),
    Gate("CEM-RL: higher at 50,000 steps than at 20,000 (interquartile means)", ("CEM-RL",),
         lambda cem: iqm(cem[50_000]) > iqm(cem[20_000]), (20_000, 50_000)),
    Gate("AES-RL without trained individuals: below 300 at 40,000 steps in every seed", (UNTRAINED,),
         lambda none: share_above(none[40_000], 300) == 0, (40_000,)),
    Gate("CEM without gradients: below 300 at 40,000 steps in every seed", ("CEM",),
         lambda cem: share_above(cem[40_000], 300) == 0, (40_000,)),
]  # fmt: skip
