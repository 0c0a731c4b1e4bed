"""P-CEM-RL: CEM-RL whose trained individuals learn in parallel (Lee et al. 2020).

The search is that of `evorl.ec.cem_rl`; what differs is when the critic learns. A serial critic learns for all trained
individuals before the first of them begins. A parallel critic learns all the time beside the actors, with the mean as
its target policy.

With a serial critic, all trained individuals of a generation begin together and take equally many gradient steps. So
one job may train several of them in products of stacked weights (``train_together``). That pays where networks are
small and workers are fewer than trained individuals. CEM-RL trains each with another version of the critic, and beside
a parallel critic individuals begin one by one; there it does not apply.

What differs from the authors' code: the parallel critic has the budget of the serial one, ``critic_ratio``; there it
learns as often as wall time allows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from evorl.ec.cem_rl import CEMRL
from evorl.ec.shared_critic import CriticOrder, CriticWorker
from evorl.util.errors import BadRequest
from evorl.util.types import Count

WORKER_KEYS = tuple(field.name for field in fields(CriticWorker))


@dataclass(frozen=True, kw_only=True)
class PCEMRL(CEMRL, CriticWorker):
    parallel_critic: bool = False
    """Whether the critic learns beside the actors, with the mean as its target policy."""
    train_together: Count = 1
    """Individuals that one job trains at once, in products of stacked weights: faster with small networks on few
    workers (docs/evolvers/p_cem_rl.md)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in () if self.parallel_critic else WORKER_KEYS:
            if getattr(self, key) != getattr(CriticWorker, key):
                raise BadRequest("is of a critic beside the actors; add ec.parallel_critic=true", key)
        if self.parallel_critic and self.train_together > 1:
            raise BadRequest("above 1 needs parallel_critic=false: individuals must start together", "train_together")

    @property
    def trained_in_one_job(self) -> int:
        return self.train_together

    @property
    def critic_order(self) -> CriticOrder:
        return "beside" if self.parallel_critic else "before"

    @property
    def critic_worker(self) -> CriticWorker | None:
        return self if self.parallel_critic else None

    def critic_steps(self, played: int) -> int:
        return self.critic_job if self.parallel_critic else super().critic_steps(played)
