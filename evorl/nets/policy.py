"""Policy and value networks built from a world's Spec.

    inputs -> encoder (evorl.nets.encoders) -> [LSTM] -> hidden layers -> policy head, value head

Actor and critic have their own hidden layers unless ``shared``; they still cost one product per layer,
since their weights are stacked: at small widths a network's time is the number of its operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from evorl.mdp.core import Box, Spec
from evorl.nets.distributions import LOG_STD, outputs
from evorl.nets.encoders import KINDS, Encoder, Inputs, choice, draw_own_weights, encoder_of
from evorl.util.errors import BadRequest
from evorl.util.types import Count, Natural

Activation = Literal["tanh", "relu", "leaky_relu", "silu"]


@dataclass(frozen=True, kw_only=True)
class Net:
    """Shape of the network."""

    encoder: str = "nature"
    """Network of images: nature | a3c | impala | elite (docs/atari.md, Networks); or a plugin's, of any inputs."""
    hidden: tuple[Count, ...] = (64, 64)
    """Widths of the hidden layers, of actor and critics each."""
    activation: Activation = "tanh"
    """Of the hidden layers."""
    shared: bool = False
    """One stack of hidden layers for actor and critic."""
    lstm: Natural = 0
    """Width of the recurrent core; 0 has none."""
    std: Literal["free", "state"] = "free"
    """Of Box actions: one learned standard deviation per component, or one that depends on the state, e^-5 to e^2."""
    log_std: float = 0.0
    """Its initial logarithm (of the action range's half width, where bounds are finite)."""
    bias: bool = True
    """Whether the hidden layers and the heads have biases."""
    output: Literal["linear", "tanh"] = "linear"
    """What the policy head's outputs go through: nothing, or tanh, which keeps a Box's mean within finite bounds."""
    own: dict[str, Any] = field(default_factory=dict, hash=False)
    """Options of encoders of plugins: +rl.net.own.NAME.KEY=VALUE."""

    def __post_init__(self) -> None:
        choice(self.encoder, self.own)
        if self.std == "state" and self.output == "tanh":
            raise BadRequest("tanh would bound the deviation too, which std=state takes from the same head", "output")
        if self.std == "state" and not self.bias:
            raise BadRequest("std=state begins at log_std by a bias", "bias")
        low, high = LOG_STD
        if self.std == "state" and not low < self.log_std < high:
            raise BadRequest(f"std=state keeps it between {low:g} and {high:g}, and {self.log_std:g} is not", "log_std")

    def encoders(self, inputs: Inputs, dense: bool = True) -> Encoder:
        """The encoder of these inputs, whose weights are yet to be drawn."""
        return encoder_of(self.encoder, self.own, inputs, dense)

    @property
    def root(self) -> str:
        """The root module of its encoder's class."""
        return KINDS.root_of(self.encoder)


# in place where the gradient needs only the result: half the memory to write and to read again
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "leaky_relu": nn.functional.leaky_relu_,
    "silu": nn.functional.silu,
}


class Output(NamedTuple):
    """What a forward pass gives for N = T * B rows."""

    raw: Tensor  # [..., outputs]
    log_std: Tensor | None  # [K] when free
    value: Tensor  # [..., R]
    carry: Tensor | None  # [2, B, H] after the last step
    features: Tensor  # [..., F]: what the policy head sees


class Layer(nn.Module):
    """G linear maps at once: [G, N, I] -> [G, N, O], the first layer from one [N, I]; a single map stays flat."""

    def __init__(self, groups: int, inputs: int, width: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, inputs, width))
        self.bias = nn.Parameter(torch.zeros(groups, 1, width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        groups, inputs, width = self.weight.shape
        if self.bias is None:
            return x @ self.weight.squeeze(0)
        if groups == 1:
            return torch.addmm(self.bias.view(width), x, self.weight.squeeze(0))
        if x.dim() == 3 and width == 1:  # for one number each, batched products take four times as long, also backward
            return (x * self.weight.transpose(1, 2)).sum(-1, keepdim=True) + self.bias
        if x.dim() == 3:
            return torch.bmm(x, self.weight) + self.bias
        wide = torch.addmm(self.bias.reshape(-1), x, self.weight.transpose(0, 1).reshape(inputs, groups * width))
        return wide.view(-1, groups, width).transpose(0, 1)


class LSTM(nn.Module):
    """A long short-term memory (Hochreiter & Schmidhuber 1997; forget gate of Gers et al. 2000).

    Its state is zeroed where an episode starts, also in the middle of a trace, so training through
    time sees exactly what acting saw.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.weight_x = nn.Parameter(torch.empty(inputs, 4 * width))
        self.weight_h = nn.Parameter(torch.empty(width, 4 * width))
        self.bias = nn.Parameter(torch.zeros(4 * width))
        self.width = width

    def forward(self, x: Tensor, carry: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x [T, B, I], carry [2, B, H], start bool [T, B] (None: nowhere) -> outputs [T, B, H] and the last carry."""
        h, c = carry[0], carry[1]
        drive = x @ self.weight_x + self.bias
        keep = None if start is None else (~start).to(x.dtype).unsqueeze(-1)
        outs = []
        for t in range(x.shape[0]):
            if keep is not None:
                h, c = h * keep[t], c * keep[t]
            i, f, g, o = torch.addmm(drive[t], h, self.weight_h).chunk(4, -1)
            c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(g)  # +1: remember at first (Jozefowicz 2015)
            h = torch.sigmoid(o) * torch.tanh(c)
            outs.append(h)
        return torch.stack(outs), torch.stack([h, c])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Orthogonal weights come from a QR decomposition, whose last bits depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Policy(nn.Module):
    """Actor and critic of one policy; see the module's docstring for the layout.

    Without ``critic`` it is a plain actor: no value head, and no deviation that does not depend on the state.
    """

    def __init__(self, spec: Spec, net: Net, critic: bool = True) -> None:
        super().__init__()
        self.spec, self.net = spec, net
        self.encoders = net.encoders(spec.inputs)
        self.core = LSTM(self.encoders.width, net.lstm) if net.lstm else None
        width = net.lstm or self.encoders.width
        groups = 2 if critic and not net.shared else 1
        widths = (width, *net.hidden)
        self.hidden = nn.ModuleList(Layer(groups, i, o, net.bias) for i, o in pairwise(widths))
        self.activation = ACTIVATIONS[net.activation]
        self.policy = nn.Linear(widths[-1], outputs(spec.action, net.std == "state"), net.bias)
        self.value = nn.Linear(widths[-1], len(spec.rewards), net.bias) if critic else None
        self.log_std = (
            nn.Parameter(torch.full((len(spec.action.low),), net.log_std))
            if isinstance(spec.action, Box) and net.std == "free" and critic
            else None
        )

    @_one_thread()
    def initialise(self, generator: torch.Generator) -> None:
        """Orthogonal weights (Saxe et al. 2014), zero biases; a policy head so small that all actions begin equal."""
        gain = math.sqrt(2)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                scale = {id(self.policy): 0.01, id(self.value): 1.0}.get(id(module), gain)
                nn.init.orthogonal_(module.weight, scale, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Layer):
                for weight in module.weight:
                    nn.init.orthogonal_(weight, gain, generator=generator)
            elif isinstance(module, LSTM):
                for weight in (module.weight_x, module.weight_h):
                    for gate in weight.chunk(4, -1):
                        nn.init.orthogonal_(gate, 1.0, generator=generator)
        draw_own_weights(self, generator)
        if isinstance(self.spec.action, Box) and self.net.std == "state":
            nn.init.constant_(self.policy.bias[len(self.spec.action.low) :], self.net.log_std)

    def initialise_uniformly(self, generator: torch.Generator) -> None:
        """Weights and biases within 1 / sqrt(inputs), as deterministic policy gradients begin (`uniform_weights`)."""
        uniform_weights(self, generator)
        if isinstance(self.spec.action, Box) and self.net.std == "state":
            with torch.no_grad():
                self.policy.bias[len(self.spec.action.low) :] += self.net.log_std

    @property
    def light(self) -> bool:
        """Whether an update is few and small operations, so that their overhead is most of its time."""
        return self.core is None and self.encoders.light

    @property
    def batched(self) -> bool:
        """Whether `raw_of_several` computes it: all weights are those of hidden layers and heads."""
        return self.core is None and next(self.encoders.parameters(), None) is None

    def carry(self, rows: int) -> Tensor | None:
        """The recurrent state of episodes about to begin, [2, B, H]; None without a core."""
        return torch.zeros(2, rows, self.net.lstm) if self.net.lstm else None

    def forward(self, inputs: tuple[Tensor, ...], carry: Tensor | None = None, start: Tensor | None = None) -> Output:
        """Rows [N, ...]; with a recurrent core [T, B, ...] with carry [2, B, H] and start bool [T, B], or None where no
        episode starts."""
        lead = inputs[0].shape[: inputs[0].dim() - len(self.spec.inputs[0].shape)]
        x = self.encoders(tuple(x.flatten(0, len(lead) - 1) for x in inputs))
        if self.core is not None:
            assert carry is not None
            x, carry = self.core(x.view(*lead, -1), carry, start)
            x = x.flatten(0, 1)
        for layer in self.hidden:
            x = self.activation(layer(x))
        raw, value, features = self._heads(x)
        if self.net.output == "tanh":
            raw = torch.tanh(raw)
        if len(lead) > 1:
            raw, value, features = (output.view(*lead, -1) for output in (raw, value, features))
        return Output(raw, self.log_std, value, carry, features)

    def raw_of_several(self, parameters: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        """Raw outputs [K, S, O] of K policies of this form, with named parameters [K, ...] each, for rows [K, S, ...].

        For a `batched` network: batched products, and no critic, take a quarter of the time of `torch.func.vmap`.
        """
        x = self.encoders(tuple(x.flatten(0, 1) for x in inputs)).unflatten(0, (len(inputs[0]), -1))
        for number in range(len(self.hidden)):
            bias = parameters[f"hidden.{number}.bias"][:, 0] if self.net.bias else None
            x = self.activation(_products(x, parameters[f"hidden.{number}.weight"][:, 0], bias))
        bias = parameters["policy.bias"][:, None] if self.net.bias else None
        raw = _products(x, parameters["policy.weight"].mT, bias)
        return torch.tanh(raw) if self.net.output == "tanh" else raw

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Raw outputs, values and features; of one product where actor and critic share what they are computed from."""
        if self.value is None:
            return self.policy(x), x.new_zeros(x.shape[0], len(self.spec.rewards)), x
        if x.dim() == 3:
            features = x[0]
            return self.policy(features), self.value(x[-1]), features
        heads = (self.policy, self.value)
        weight = torch.cat([head.weight for head in heads])
        bias = torch.cat([head.bias for head in heads]) if self.net.bias else None
        raw, value = nn.functional.linear(x, weight, bias).split([len(head.weight) for head in heads], -1)
        return raw, value, x


def _products(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """[K, S, I] @ [K, I, O] + [K, 1, O]."""
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


def uniform_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights and biases uniformly within 1 / sqrt(inputs), PyTorch's default for linear layers; those of a
    recurrent core within 1 / sqrt(width), as there."""
    for layer in module.modules():
        if isinstance(layer, LSTM):
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -1 / layer.width**0.5, 1 / layer.width**0.5, generator=generator)
        if isinstance(layer, (Layer, nn.Linear, nn.Conv2d)):
            inputs = layer.weight.shape[1] if isinstance(layer, Layer) else layer.weight[0].numel()
            for x in (layer.weight, layer.bias):
                if x is not None:
                    nn.init.uniform_(x, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs), generator=generator)
    draw_own_weights(module, generator)
