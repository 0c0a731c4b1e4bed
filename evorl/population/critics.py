"""The critics of an evolution with a shared critic: each a chain of versions that jobs make one from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from evorl.nets.flat import copied
from evorl.rl.separate_updates import AnyLearner
from evorl.util.types import StateDict


class Critic:
    """One chain of critic versions: each is what a job made of the one before."""

    def __init__(self, learner: AnyLearner) -> None:
        self.state: Mapping[str, Any] = arrays(learner.critic_state())
        self.gradient_steps = self.version = 0

    def guide(self, names: Sequence[str]) -> dict[str, Any]:
        """The part that trained individuals follow."""
        return {name: self.state[name] for name in names}

    def state_dict(self) -> StateDict:
        return {"state": dict(self.state), "gradient_steps": self.gradient_steps, "version": self.version}

    def load_state_dict(self, state: StateDict) -> None:
        self.state, self.gradient_steps, self.version = state["state"], state["gradient_steps"], state["version"]


class Critics:
    """Critics that learn independently; each takes ``ratio`` gradient steps for each environment step.

    If ``ratio`` is None they may take any number of steps, and their lag is measured as if it were 1.
    """

    def __init__(self, learners: Sequence[AnyLearner], ratio: float | None) -> None:
        self.chains, self.ratio = [Critic(learner) for learner in learners], ratio

    def __getitem__(self, chain: int) -> Critic:
        return self.chains[chain]

    def __len__(self) -> int:
        return len(self.chains)

    @property
    def gradient_steps(self) -> int:
        """Of the slowest critic."""
        return min(chain.gradient_steps for chain in self.chains)

    def lag(self, steps: int) -> float:
        """Return how many of ``steps`` environment steps the slowest critic is behind.

        A critic may be ahead, because it always finishes a job; then the lag is 0.
        """
        return max(steps - self.gradient_steps / (self.ratio or 1.0), 0.0)

    def learned(self, steps: int) -> bool:
        """Whether all critics have taken the gradient steps for so many environment steps."""
        return self.lag(steps) <= 0

    def may_learn(self, chain: int, steps: int) -> bool:
        """Whether a critic has gradient steps left to take after so many environment steps."""
        return self.ratio is None or self.chains[chain].gradient_steps < self.ratio * steps

    def state_dict(self) -> StateDict:
        return {str(chain): critic.state_dict() for chain, critic in enumerate(self.chains)}

    def load_state_dict(self, state: StateDict) -> None:
        for chain, critic in enumerate(self.chains):
            critic.load_state_dict(state[str(chain)])


def arrays(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """A critic's state as arrays, for a message."""
    return {name: x.numpy() for name, x in copied(tensors).items()}
