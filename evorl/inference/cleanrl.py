"""Policies as CleanRL's programs save them with ``--save-model``: states of their networks, by torch.save.

    ppo.py, ppo_continuous_action.py   one network with actor and critic         dqn.py   its network
    td3_continuous_action.py, ddpg_continuous_action.py                          actor and critics, in a tuple

The programs fix the activation and the number of layers, and only widths are a number to change in them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evorl.inference.linear import LinearPolicy, State, layer, saved, sequential
from evorl.jobs.foreign_policies import Linear, units
from evorl.mdp.core import Box, MultiDiscrete
from evorl.util.errors import BadRequest

LAYERS = ("fc1", "fc2")
"""The hidden layers of TD3 and DDPG."""


def check(policy: LinearPolicy) -> None:
    """Raise `BadRequest` for a policy that no program has the network of."""
    kind, activation, count = policy.actor.kind, policy.actor.activation, len(policy.actor.hidden)
    usual = "tanh" if kind == "policy" else "relu"
    counts = {count, *(len(layers) - 1 for layers in policy.critics)}
    reasons = {
        "CleanRL's SAC computes deviations otherwise": kind == "squashed",
        "CleanRL's ppo.py takes one choice, and this world several": isinstance(policy.spec.action, MultiDiscrete),
        f"CleanRL's program has rl.net.activation={usual}, and this policy {activation}": activation != usual,
        f"CleanRL's program has {len(LAYERS)} hidden layers, and this policy {count} (normalised inputs take one)": (
            kind == "deterministic" and counts != {len(LAYERS)}
        ),
    }
    for why, so in reasons.items():
        if so:
            raise BadRequest(f"{why}; format=sb3 writes this policy", "format")


def content(policy: LinearPolicy) -> bytes:
    """The bytes of a file with this policy, which `check` has let pass."""
    return saved(_states(policy))


def _states(policy: LinearPolicy) -> State | tuple[State, ...]:
    network, action = policy.actor, policy.spec.action
    layers = [*network.hidden, network.head]
    if network.kind == "values":
        return sequential("network", layers)
    if network.kind == "policy":
        (critic,) = policy.critics
        if network.log_std is None:
            return {**sequential("critic", critic), **sequential("actor", layers)}
        actor = {"actor_logstd": network.log_std[None], **sequential("actor_mean", layers)}
        return {**actor, **sequential("critic", critic)}
    assert isinstance(action, Box)
    centre, half = (x.float() for x in units(action))
    scaling = {"action_scale": half, "action_bias": centre}
    critics = [_named([_of_world_actions(first, action), *rest], "fc3") for first, *rest in policy.critics]
    return ({**_named(layers, "fc_mu"), **scaling}, *critics)


def _named(layers: Sequence[Linear], last: str) -> State:
    state: State = {}
    for name, each in zip((*LAYERS, last), layers, strict=True):
        state |= layer(name, each)
    return state


def _of_world_actions(first: Linear, action: Box) -> Linear:
    """The first layer of a critic, which takes actions in the units of the world there."""
    (weight, bias), (centre, half) = first, units(action)
    seen, taken = weight.double().split([weight.shape[1] - len(half), len(half)], 1)
    taken = taken / half
    return torch.cat([seen, taken], 1).float(), (bias.double() - taken @ centre).float()
