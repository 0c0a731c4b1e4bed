"""P-CEM-RL: CEM-RL whose trained individuals learn in parallel (Lee et al. 2020).

The search is that of `evorl.ec.cem_rl`; what differs is when the critic learns. A serial critic learns for all trained
individuals before the first of them begins. A parallel critic learns all the time beside the actors, with the mean as
its target policy.

What differs from the authors' code: the parallel critic has the budget of the serial one, ``critic_ratio``; there it
learns as often as wall time allows.
"""

from __future__ import annotations

from dataclasses import dataclass

from evorl.ec.cem_rl import CEMRL
from evorl.ec.shared_critic import CriticOrder, CriticWorker


@dataclass(frozen=True, kw_only=True)
class PCEMRL(CEMRL, CriticWorker):
    parallel_critic: bool = False
    """Whether the critic learns beside the actors."""

    @property
    def critic_order(self) -> CriticOrder:
        return "beside" if self.parallel_critic else "before"
