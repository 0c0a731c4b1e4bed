"""States as vectors, for comparing them: pictures go through random convolutions that never change.

Random convolutions keep what differs between pictures (Burda et al. 2019, arXiv 1808.04355). Since nothing is learned,
the vector of a state is the same at any time of a run.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evorl.mdp.core import Spec
from evorl.nets.policy import Net, uniform_weights
from evorl.util import seed as seeds


class RandomFeatures:
    def __init__(self, spec: Spec, net: Net, seed: int, device: torch.device) -> None:
        self.encoders = net.encoders(spec.inputs, dense=False)
        uniform_weights(self.encoders, torch.Generator().manual_seed(seeds.key(seed, "random features") >> 1))
        self.encoders.to(device)
        self.device = device

    def __call__(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """The vectors [M, F] of states, each input [M, ...]: numbers as they are, and features of pictures."""
        with torch.inference_mode():
            features: Tensor = self.encoders(tuple(x.to(self.device) for x in inputs))
            return features.cpu()
