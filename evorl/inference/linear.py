"""A policy and its critics as linear layers in a world's own units, as Stable-Baselines3 and CleanRL have them.

`evorl.jobs.foreign_policies` makes learners of such layers; this is the way back. A policy that computes anything else
is refused. Normalised inputs are computed by layers more, which need ReLU (`of_raw_inputs`).

Letters in shapes: R named rewards, A choices, M atoms of a value.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from evorl.inference.side import OwnMoments
from evorl.jobs.foreign_policies import Kind, Linear, Network, units
from evorl.mdp.core import Box, Spec
from evorl.nets.action_values import ActionValues
from evorl.nets.encoders import ImageEncoder
from evorl.nets.per_side import PolicyPerSide
from evorl.nets.statistics import CLIP, Moments
from evorl.rl import sac
from evorl.rl.a2c import A2C
from evorl.rl.ddpg import DDPG
from evorl.rl.dqn import DQN
from evorl.rl.network_learner import NetworkLearner
from evorl.rl.off_policy import OffPolicy
from evorl.rl.r2d2 import R2D2
from evorl.rl.td3 import TD3
from evorl.util.errors import BadRequest

Algorithm = Literal["PPO", "A2C", "DQN", "TD3", "DDPG", "SAC"]
ALGORITHMS: Sequence[tuple[type, Algorithm, Kind]] = (
    (TD3, "TD3", "deterministic"),
    (DDPG, "DDPG", "deterministic"),  # of which TD3 is one
    (sac.SAC, "SAC", "squashed"),
    (DQN, "DQN", "values"),
    (A2C, "A2C", "policy"),
    (object, "PPO", "policy"),
)
"""The algorithm of those libraries whose policies have the form of a learner's, the first that fits."""
State = dict[str, Tensor]
"""Tensors of an ``nn.Module`` by name."""


class LinearPolicy(NamedTuple):
    """A policy with all that the libraries keep of it."""

    algorithm: Algorithm
    actor: Network
    critics: Sequence[Sequence[Linear]]
    """The layers of each: of a state's value, or of the values of state and action side by side. DQN has none."""
    spec: Spec
    log_alpha: Tensor | None = None
    """The logarithm [] of SAC's temperature."""


def linear_policy(learner: NetworkLearner[Any]) -> LinearPolicy:
    """The layers of a learner with one network. Raises `BadRequest` for what such layers do not compute."""
    if missing := _beyond_layers(learner):
        raise BadRequest(f"sb3 and cleanrl write no {missing}; format=onnx writes this policy", "format")
    algorithm, kind = next((name, kind) for hyper, name, kind in ALGORITHMS if isinstance(learner.hyper, hyper))
    action, named = learner.spec.action, learner.layout.copied(learner.theta)
    if isinstance(learner.policy, ActionValues):
        head = _value_head(named, learner.policy.shape)
    else:
        head = _head(named, "policy")
    log_std = named.get("log_std")
    if kind == "policy" and isinstance(action, Box) and log_std is not None:
        head, log_std = _in_world_units(head, log_std, action)
    *hidden, head = of_raw_inputs([*_stack(named, "hidden", 0), head], learner.moments)
    network = Network(kind, hidden, head, log_std, learner.hyper.net.activation)
    log_alpha = learner.temperature.log if isinstance(learner, sac.Learner) else None
    return LinearPolicy(algorithm, network, _critics(learner, named), learner.spec, log_alpha)


def _beyond_layers(learner: NetworkLearner[Any]) -> str:
    """What of a policy has no form in those libraries, or none that is written; empty if all of it has."""
    hyper, spec, policy, net = learner.hyper, learner.spec, learner.policy, learner.hyper.net
    assert not isinstance(policy, PolicyPerSide)
    actor_critic = not isinstance(learner, OffPolicy)
    parts = {
        "rescaled values of rl=r2d2": isinstance(hyper, R2D2),
        "LSTM": policy.core is not None,
        "policy of pictures or of several observations": len(spec.inputs) != 1 or spec.inputs[0].dtype == "uint8",
        "masks of legal actions": spec.masked,
        "encoder of a plugin": not isinstance(policy.encoders, ImageEncoder),
        "deviation that depends on the state (rl.net.std=state), but of rl=sac": (
            actor_critic and isinstance(spec.action, Box) and net.std == "state"
        ),
        "mean behind a tanh (rl.net.output=tanh), but of rl=td3 and ddpg": actor_critic and net.output == "tanh",
        "dueling network (rl.dueling)": getattr(hyper, "dueling", False),
        "probabilities of values (rl.distribution=c51)": getattr(hyper, "distribution", None) == "c51",
        "critics with an activation of their own (rl.critic_activation)": (
            getattr(hyper, "critic_activation", None) not in (None, net.activation)
        ),
        "normalised inputs of one side (rl.policies)": isinstance(learner.moments, OwnMoments),
        f"normalised inputs with rl.net.activation={net.activation} (relu alone can clip them)": (
            learner.moments is not None and net.activation != "relu"
        ),
    }
    return next((part for part, there in parts.items() if there), "")


# ------------------------------------------------------------------ layers


def _stack(named: Mapping[str, Tensor], prefix: str, group: int) -> list[Linear]:
    """The layers of one of the networks that lie side by side under a prefix."""
    layers: list[Linear] = []
    while f"{prefix}.{len(layers)}.weight" in named:
        layers.append(_layer(named, f"{prefix}.{len(layers)}", group))
    return layers


def _layer(named: Mapping[str, Tensor], name: str, group: int) -> Linear:
    """One of the linear maps of a `evorl.nets.policy.Layer`."""
    weight, bias = named[f"{name}.weight"][group].T, named.get(f"{name}.bias")
    return weight, weight.new_zeros(len(weight)) if bias is None else bias[group, 0]


def _head(named: Mapping[str, Tensor], name: str) -> Linear:
    weight = named[f"{name}.weight"]
    return weight, named.get(f"{name}.bias", weight.new_zeros(len(weight)))


def _value_head(named: Mapping[str, Tensor], shape: tuple[int, int, int]) -> Linear:
    """Expected returns [A] of action values [R, A, M]: the sum over rewards of means over quantiles."""
    weight, bias = _layer(named, "advantage", 0)
    return weight.reshape(*shape, -1).mean(2).sum(0), bias.reshape(shape).mean(2).sum(0)


def _critics(learner: NetworkLearner[Any], named: Mapping[str, Tensor]) -> list[list[Linear]]:
    """The critics' layers; several named rewards are added up."""
    if isinstance(learner, OffPolicy):
        q_named, components = learner.critic_layout.copied(learner.critic.phi), learner.components
        stacks = [_stack(q_named, "layers", group) for group in range(learner.critics)]
        return [of_raw_inputs([*hidden, _summed(head)], learner.moments, components) for *hidden, head in stacks]
    if isinstance(learner.policy, ActionValues):
        return []
    return [of_raw_inputs([*_stack(named, "hidden", -1), _summed(_head(named, "value"))], learner.moments)]


def _summed(head: Linear) -> Linear:
    weight, bias = head
    return weight.sum(0, keepdim=True), bias.sum(0, keepdim=True)


def _in_world_units(head: Linear, log_std: Tensor, action: Box) -> tuple[Linear, Tensor]:
    """The inverse of what reading does: means and log deviations in the units of the world."""
    (weight, bias), (centre, half) = head, units(action)
    scaled = (weight.double() * half[:, None]).float(), (bias.double() * half + centre).float()
    return scaled, (log_std.double() + half.log()).float()


def of_raw_inputs(layers: Sequence[Linear], moments: Moments | None, others: int = 0) -> list[Linear]:
    """Layers with ReLU that take raw inputs, and so many ``others`` within [-1, 1] behind them, as they are.

    One more layer clips the normalised inputs z: relu(z) - relu(z - c) - relu(-z) + relu(-z - c) is z within [-c, c].
    Whitening takes another one before it, which subtracts the mean: relu(x - m) - relu(m - x) is x - m. Its factors
    would enlarge what float32 loses in their products with large inputs.
    """
    if moments is None:
        return [*layers]
    mean, scale = (x.double() for x in moments.tensors(torch.device("cpu")))
    scale = scale if moments.whiten else torch.diag(scale.flatten())
    mean = torch.cat([mean.flatten(), torch.zeros(others, dtype=torch.float64)])
    scale = torch.block_diag(scale, torch.eye(others, dtype=torch.float64)).T
    before, taken = list[Linear](), torch.zeros_like(mean)
    if moments.whiten:
        near, one = mean.float(), torch.eye(len(mean))
        before, taken = [(torch.cat([one, -one]), torch.cat([-near, near]))], near.double()
    shift = -scale @ (mean - taken)
    scale = torch.cat([scale, -scale], 1) if moments.whiten else scale
    pieces = torch.cat([scale, scale, -scale, -scale]), torch.cat([shift, shift - CLIP, -shift, -shift - CLIP])
    (weight, bias), *rest = layers
    clipped = torch.cat([weight, -weight, -weight, weight], 1), bias
    return [*before, (pieces[0].float(), pieces[1].float()), clipped, *rest]


# ------------------------------------------------------------------ under their names


def sequential(prefix: str, layers: Sequence[Linear]) -> State:
    """An ``nn.Sequential`` of layers with an activation behind each: every second number is a layer's."""
    named: State = {}
    for number, each in enumerate(layers):
        named |= layer(f"{prefix}.{2 * number}", each)
    return named


def layer(name: str, numbers: Linear) -> State:
    """An ``nn.Linear``."""
    weight, bias = (x.clone(memory_format=torch.contiguous_format) for x in numbers)  # of a view, all would be saved
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def saved(states: Any) -> bytes:
    """What torch.save writes."""
    data = io.BytesIO()
    torch.save(states, data)
    return data.getvalue()
