"""Networks of action values Q(s, .) for worlds with one choice among several.

    inputs -> encoder (evorl.nets.encoders) -> [LSTM] -> hidden layers -> values of all actions

A *dueling* network (Wang et al. 2016) has two stacks of hidden layers, computed as one: for the state's value and for
the actions' advantages. A *noisy* one (Fortunato et al. 2018) has layers whose weights are perturbed by given noise.

Letters in shapes: N rows, R named rewards, A actions, M atoms of a value's distribution (1 where it is a number).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from evorl.mdp.core import Discrete, Spec
from evorl.nets.policy import ACTIVATIONS, LSTM, Layer, Net, uniform_weights


class ActionValues(nn.Module):
    """Values of all actions; with ``noisy_std`` the layers behind the encoder are noisy."""

    def __init__(self, spec: Spec, net: Net, dueling: bool, noisy_std: float | None, atoms: int) -> None:
        super().__init__()
        assert isinstance(spec.action, Discrete)
        self.spec = spec
        self.encoders = net.encoders(spec.inputs, dense=False)
        self.light = not net.lstm and self.encoders.light  # as `Policy.light`
        self.core = LSTM(self.encoders.width, net.lstm) if net.lstm else None
        width = net.lstm or self.encoders.width
        layer = Layer if noisy_std is None else partial(NoisyLayer, std=noisy_std)
        widths, self.shape = (width, *net.hidden), (len(spec.rewards), spec.action.n, atoms)
        self.hidden = nn.ModuleList(layer(2 if dueling else 1, i, o, net.bias) for i, o in pairwise(widths))
        self.advantage = layer(1, widths[-1], math.prod(self.shape), net.bias)
        self.value = layer(1, widths[-1], len(spec.rewards) * atoms, net.bias) if dueling else None
        self.activation = ACTIVATIONS[net.activation]

    def initialise(self, generator: torch.Generator) -> None:
        """Weights and biases within 1 / sqrt(inputs), in noisy layers too (Fortunato et al. 2018, section 3.2)."""
        uniform_weights(self, generator)

    def carry(self, rows: int) -> Tensor | None:
        """The recurrent state of episodes about to begin, [2, B, H]; None without a core."""
        return None if self.core is None else torch.zeros(2, rows, self.core.width)

    def forward(
        self, inputs: tuple[Tensor, ...], carry: Tensor | None = None, start: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Values [N, R, A, M] in the states of ``inputs``, each [N, ...], and no carry.

        With a recurrent core values [T * N, R, A, M] of inputs [T, N, ...], with carry [2, N, H] and start bool
        [T, N] (or None where no episode starts), and the last carry.
        """
        lead = inputs[0].shape[: inputs[0].dim() - len(self.spec.inputs[0].shape)]
        x = self.encoders(tuple(x.flatten(0, len(lead) - 1) for x in inputs))
        if self.core is not None:
            assert carry is not None
            x, carry = self.core(x.view(*lead, -1), carry, start)
            x = x.flatten(0, 1)
        for layer in self.hidden:
            x = self.activation(layer(x))
        own, common = (x[0], x[1]) if x.dim() == 3 else (x, x)
        rewards, actions, atoms = self.shape
        advantage: Tensor = self.advantage(own).view(-1, rewards, actions, atoms)
        if self.value is None:
            return advantage, carry
        value = self.value(common).view(-1, rewards, 1, atoms)
        values: Tensor = value + advantage - advantage.mean(2, keepdim=True)  # Wang et al. 2016, eq. 9
        return values, carry


class NoisyLayer(Layer):
    """Linear maps with factorised Gaussian noise: weights mu + sigma * f(e) f(e')^T.

    Fortunato et al. 2018, eq. 9 to 11. As a module it computes with mu; `perturbed` adds the noise.
    """

    def __init__(self, groups: int, inputs: int, width: int, bias: bool = True, *, std: float) -> None:
        super().__init__(groups, inputs, width, bias)
        scale = std / math.sqrt(inputs)
        self.weight_sigma = nn.Parameter(torch.full((groups, inputs, width), scale))
        self.bias_sigma = nn.Parameter(torch.full((groups, 1, width), scale)) if bias else None


def noise_size(network: nn.Module) -> int:
    """Numbers of noise that the noisy layers of a network take, Z."""
    return sum(math.prod(layer.weight.shape[:2]) + layer.weight[:, 0].numel() for _, layer in _noisy(network))


def perturbed(network: nn.Module, named: Mapping[str, Tensor], noise: Tensor) -> dict[str, Tensor]:
    """Return the parameters of a network under standard normal noise [Z]."""
    noise, at, noisy = noise.sign() * noise.abs().sqrt(), 0, dict(named)  # f(x) = sgn(x) sqrt(|x|)
    for name, layer in _noisy(network):
        groups, inputs, width = layer.weight.shape
        before, after = (
            noise.narrow(0, begin, groups * size) for begin, size in ((at, inputs), (at + groups * inputs, width))
        )
        at += groups * (inputs + width)
        after = after.view(groups, 1, width)
        factors = before.view(groups, inputs, 1) * after
        noisy[f"{name}.weight"] = named[f"{name}.weight"] + named[f"{name}.weight_sigma"] * factors
        if layer.bias is not None:
            noisy[f"{name}.bias"] = named[f"{name}.bias"] + named[f"{name}.bias_sigma"] * after
    return noisy


def _noisy(network: nn.Module) -> Iterator[tuple[str, NoisyLayer]]:
    return ((name, layer) for name, layer in network.named_modules() if isinstance(layer, NoisyLayer))
