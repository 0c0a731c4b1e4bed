"""Policies as Stable-Baselines3 loads them: ``PPO.load("policy.zip")``, and so A2C, DQN, TD3, DDPG and SAC.

The library is not needed. Such a zip (its common/save_util.py) has ``data``, JSON in which spaces and classes are
pickles, and states by torch.save: of the policy, and of optimisers that have taken no step. Each pickle is a short
text (`pickled`) that names classes and calls them with numbers, so it depends on no version of gymnasium or NumPy.
"""

from __future__ import annotations

import base64
import io
import json
import math
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from evorl.inference.linear import Algorithm, LinearPolicy, State, layer, saved, sequential
from evorl.mdp.core import Action, Box, Discrete
from evorl.nets.policy import Activation

VERSION = "2.7.0"
"""The release whose form the zip has."""
POLICIES: Mapping[Algorithm, tuple[str, str]] = {
    "PPO": ("stable_baselines3.common.policies", "ActorCriticPolicy"),
    "A2C": ("stable_baselines3.common.policies", "ActorCriticPolicy"),
    "DQN": ("stable_baselines3.dqn.policies", "DQNPolicy"),
    "TD3": ("stable_baselines3.td3.policies", "TD3Policy"),
    "DDPG": ("stable_baselines3.td3.policies", "TD3Policy"),
    "SAC": ("stable_baselines3.sac.policies", "SACPolicy"),
}
ACTIVATIONS: Mapping[Activation, str] = {"tanh": "Tanh", "relu": "ReLU", "leaky_relu": "LeakyReLU", "silu": "SiLU"}


def content(policy: LinearPolicy, description: str, step: int) -> bytes:
    """The bytes of a zip with this policy, trained for so many steps. ``description``: of it, as JSON."""
    state = policy_state(policy)
    parts = {"policy": state, **{f"{part}.optimizer": _optimizer(own) for part, own in _optimized(policy, state)}}
    if policy.log_alpha is not None:
        parts["pytorch_variables"] = {"log_ent_coef": policy.log_alpha.reshape(1).clone()}
        parts["ent_coef_optimizer"] = _optimizer(parts["pytorch_variables"])
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, text in {
            "data": json.dumps(_data(policy, step), indent=4),
            "_stable_baselines3_version": VERSION,
            "system_info.txt": "written by evorl.export\n",
            "evorl": description,
        }.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # of no date
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.pth"), saved(part))
    return written.getvalue()


def policy_state(policy: LinearPolicy) -> State:
    """The tensors of the library's policy, by name. Targets are what they follow."""
    network, last = policy.actor, policy.actor.head
    match network.kind:
        case "policy":
            ((*value, value_head),) = policy.critics
            own = {} if network.log_std is None else {"log_std": network.log_std}
            return {
                **own, **sequential("mlp_extractor.policy_net", network.hidden),
                **sequential("mlp_extractor.value_net", value),
                **layer("action_net", last), **layer("value_net", value_head),
            }  # fmt: skip
        case "values":
            layers = [*network.hidden, last]
            return {**sequential("q_net.q_net", layers), **sequential("q_net_target.q_net", layers)}
        case "deterministic":
            layers = [*network.hidden, last]
            actor = {**sequential("actor.mu", layers), **sequential("actor_target.mu", layers)}
        case "squashed":
            mean, log_std = zip(*(x.chunk(2) for x in last), strict=True)
            actor = {
                **sequential("actor.latent_pi", network.hidden),
                **layer("actor.mu", mean), **layer("actor.log_std", log_std),
            }  # fmt: skip
    for part in ("critic", "critic_target"):
        for number, critic in enumerate(policy.critics):
            actor |= sequential(f"{part}.qf{number}", critic)
    return actor


# ------------------------------------------------------------------ what else the library loads


def _optimized(policy: LinearPolicy, state: State) -> list[tuple[str, State]]:
    """The parts that have an optimiser, and their parameters."""
    if policy.actor.kind == "policy":
        return [("policy", state)]
    if policy.actor.kind == "values":
        return [("policy", _beginning(state, "q_net."))]
    return [(part, _beginning(state, f"{part}.")) for part in ("actor", "critic")]


def _beginning(state: State, prefix: str) -> State:
    return {name: x for name, x in state.items() if name.startswith(prefix)}


def _optimizer(state: State) -> dict[str, Any]:
    """The state of Adam before its first step. The library sets the learning rate when it learns."""
    return torch.optim.Adam([nn.Parameter(x) for x in state.values()]).state_dict()


def _data(policy: LinearPolicy, step: int) -> dict[str, Any]:
    """What is no tensor. The library's defaults stand for all that is not here."""
    network, (observation,) = policy.actor, policy.spec.inputs
    widths = [len(bias) for _, bias in network.hidden]
    activation = Named("torch.nn.modules.activation", ACTIVATIONS[network.activation])
    kwargs: dict[str, Any] = {"net_arch": widths, "activation_fn": activation}
    if policy.critics:
        other = "vf" if network.kind == "policy" else "qf"
        kwargs["net_arch"] = {"pi": widths, other: [len(bias) for _, bias in policy.critics[0][:-1]]}
    if network.kind in ("deterministic", "squashed"):
        kwargs["n_critics"] = len(policy.critics)
    unbounded = (-math.inf,) * math.prod(observation.shape), (math.inf,) * math.prod(observation.shape)
    data: dict[str, Any] = {
        "policy_class": _serialized(Named(*POLICIES[policy.algorithm])),
        "policy_kwargs": {**_serialized(kwargs), "activation_fn": str(activation)},  # which readers see
        "observation_space": _serialized(_box(Box(*unbounded), observation.shape)),
        "action_space": _serialized(_space(policy.spec.action)),
        "n_envs": 1,
        "verbose": 0,
        "num_timesteps": step,
    }
    if policy.log_alpha is not None:
        data["target_entropy"] = -float(len(network.head[1]) // 2)  # the library's own default needs an environment
    return data


def _space(action: Action) -> Call:
    if isinstance(action, Box):
        return _box(action, (len(action.low),))
    if isinstance(action, Discrete):
        return Call(Named("gymnasium.spaces", "Discrete"), (action.n,))
    return Call(Named("gymnasium.spaces", "MultiDiscrete"), (list(action.nvec),))


def _box(box: Box, shape: tuple[int, ...]) -> Call:
    low, high = (
        Call(Named("numpy", "reshape"), (Call(Named("numpy", "array"), (list(x), "float32")), shape))
        for x in (box.low, box.high)
    )
    return Call(Named("gymnasium.spaces", "Box"), (low, high, shape, Named("numpy", "float32")))


# ------------------------------------------------------------------ pickles


class Named(NamedTuple):
    """Something of a module."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"<class '{self.module}.{self.name}'>"


class Call(NamedTuple):
    """The result of a function."""

    function: Named
    arguments: tuple[Any, ...]


def _serialized(value: Any) -> dict[str, str]:
    """An entry of ``data`` that the library unpickles."""
    kind = value.function if isinstance(value, Call) else type(value)
    return {":type:": str(kind), ":serialized:": base64.b64encode(f"{pickled(value)}.".encode("ascii")).decode("ascii")}


def pickled(value: Any) -> str:
    """The opcodes of pickle's protocol 0, which is text, for plain values, and for `Named` and `Call` of them.

    Strings are single words of ASCII. Raises TypeError for a value of another kind.
    """
    match value:
        case Named():
            return f"c{value.module}\n{value.name}\n"
        case Call():
            return f"{pickled(value.function)}{pickled(value.arguments)}R"
        case dict():
            return f"({''.join(pickled(x) for pair in value.items() for x in pair)}d"
        case list():
            return f"({''.join(map(pickled, value))}l"
        case tuple():
            return f"({''.join(map(pickled, value))}t"
        case str():
            return f"V{value}\n"
        case int():
            return f"I{value}\n"
        case float():
            return f"F{value!r}\n"
    raise TypeError(f"no pickle of a {type(value).__name__}")
