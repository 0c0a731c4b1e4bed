"""Policies that other libraries saved, as learners of evorl: ``sb3:FILE.zip`` and ``cleanrl:FILE``.

Files are read as data: JSON, and tensors by the reader of PyTorch that makes tensors alone (``weights_only``). The
pickled objects in a zip of Stable-Baselines3 are not read. Networks of linear layers follow from the names and shapes
of tensors:

    sb3       PPO, A2C, DQN, TD3, DDPG, SAC with MlpPolicy       cleanrl   ppo, ppo_continuous_action, dqn, td3, ddpg

The policy acts as there: a Gaussian action is clipped to the bounds of the world, not scaled to them.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from evorl.util import files
from evorl.util.errors import BadRequest, reason, wrong_data

if TYPE_CHECKING:
    from torch import Tensor

    from evorl.mdp.core import Box, Spec
    from evorl.nets.policy import Activation
    from evorl.rl.core import Hyper
    from evorl.rl.network_learner import NetworkLearner

LIBRARIES = ("sb3", "cleanrl")
MOST_BYTES = 1 << 30
"""Of a file, or of a part of a zip once it is unpacked."""
ACTIVATIONS: dict[str, Activation] = {"Tanh": "tanh", "ReLU": "relu", "LeakyReLU": "leaky_relu", "SiLU": "silu"}
EXTRACTOR = "FlattenExtractor"
"""The features extractor of SB3's MlpPolicy, which computes nothing."""
SURE_LOG_STD = -30.0
"""Of a policy that is deterministic."""
Linear = tuple["Tensor", "Tensor"]
"""Weights [O, I] and bias [O]."""


Kind = Literal["policy", "values", "deterministic", "squashed"]
SB3: Sequence[tuple[str, str, Kind]] = (
    ("mlp_extractor.policy_net", "action_net", "policy"),
    ("q_net.q_net", "", "values"),
    ("actor.latent_pi", "actor.mu", "squashed"),
    ("actor.mu", "", "deterministic"),
)
"""Names of the hidden layers and of the head in Stable-Baselines3, and the kind of policy that they make."""
SB3_BESIDE = ("mlp_extractor.value_net.", "value_net.", "q_net_target.", "actor_target.", "critic.", "critic_target.")
"""How tensors begin that do not decide, in Stable-Baselines3."""
CLEANRL: Sequence[tuple[str, Kind]] = (("actor", "policy"), ("actor_mean", "policy"), ("network", "values"))
CLEANRL_BESIDE = ("critic.", "action_scale", "action_bias")
"""The same in CleanRL, and the bounds of actions, which are the world's here."""


class Network(NamedTuple):
    """A policy of linear layers."""

    kind: Kind
    """Logits or means; values of actions; means behind a tanh; means and log deviations of a Gaussian before a tanh."""
    hidden: Sequence[Linear]
    head: Linear
    log_std: Tensor | None
    activation: Activation


def is_foreign(word: str) -> bool:
    """Return whether a word names the policy of another library."""
    return word.partition(":")[0] in LIBRARIES and ":" in word


def foreign_learner(word: str, spec: Spec, key: str) -> NetworkLearner[Any]:
    """The learner with the policy that a word names, for a world with this spec. Raises `BadRequest` at ``key``."""
    library, _, place = word.partition(":")
    try:
        return learner_of(library, _bytes(Path(place)), spec)
    except BadRequest as error:
        raise BadRequest(f"{word}: {error.args[0]}", key) from None


def learner_of(library: str, data: bytes, spec: Spec) -> NetworkLearner[Any]:
    """The learner with the policy in a file of this library, for a world with this spec. Raises `BadRequest`."""
    import torch

    with wrong_data(lambda why: BadRequest(f"its tensors make no policy: {why}")):
        network = (_sb3 if library == "sb3" else _cleanrl)(data)
        learner = cast("NetworkLearner[Any]", _hyper(network).learner(spec, 0, torch.device("cpu")))
        state = learner.state_dict()
        own = parameters(network, spec, state["policy"])
        targets = {"policy_target": own} if "policy_target" in state else {}
        learner.load_policy({**state, "policy": own, **targets})
        return learner


# ------------------------------------------------------------------ files


def _loaded(data: bytes, part: str = "") -> Any:
    """Tensors, by name, of what torch.save wrote. Raises `BadRequest`; ``part``: of the file, for its message."""
    import torch

    if not data:
        raise BadRequest(f"{part}is empty, and holds no tensors")
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception:  # it may be anything
        raise BadRequest(f"{part}cannot be read as tensors: it is cut off, damaged or holds other objects") from None


def _bytes(path: Path) -> bytes:
    try:
        return files.read(path, MOST_BYTES)
    except OSError as error:
        raise BadRequest(f"cannot be read: {error.strerror}") from None


def _part(archive: zipfile.ZipFile, name: str) -> bytes | None:
    """A part of a zip; None if it has none of this name."""
    if name not in archive.namelist():
        return None
    if archive.getinfo(name).file_size > MOST_BYTES:
        raise BadRequest(f"its {name} has more than {MOST_BYTES >> 20} MiB")
    return archive.read(name)


def _tensors(state: Any) -> dict[str, Tensor]:
    """The tensors of a state, by name; of several states those of the first, which is the actor's."""
    import torch

    state = state[0] if isinstance(state, tuple | list) and state else state
    if not isinstance(state, Mapping):
        raise BadRequest("holds no state of a network")
    tensors = {str(name): x.detach() for name, x in state.items() if isinstance(x, torch.Tensor)}
    if any(x.dim() == 4 for x in tensors.values()):
        raise BadRequest("its network has convolutions; policies of pictures are not read")
    if odd := [name for name, x in tensors.items() if x.layout != torch.strided or x.is_meta or x.is_quantized]:
        raise BadRequest(f"its {odd[0]} is no plain tensor")
    return {name: x.float() for name, x in tensors.items()}


# ------------------------------------------------------------------ networks


def _sb3(data: bytes) -> Network:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            weights, about = _part(archive, "policy.pth"), _part(archive, "data")
    except BadRequest:
        raise
    except Exception as error:  # each compression has errors of its own
        raise BadRequest(f"is no zip of Stable-Baselines3, or damaged: {reason(error)}") from None
    if weights is None:
        raise BadRequest("is no zip of Stable-Baselines3: it has no policy.pth")
    tensors, kwargs = _tensors(_loaded(weights, "its policy.pth ")), _kwargs(about)
    for prefix, head, kind in SB3:
        layers = [*_sequence(tensors, "mlp_extractor.shared_net"), *_sequence(tensors, prefix)]
        if not head and layers:
            *layers, last = layers
        elif head and f"{head}.weight" in tensors:
            last = _linear(tensors, head)
        else:
            continue
        log_std = tensors.get("log_std")
        if kind == "squashed":
            last, log_std = _together(last, _linear(tensors, "actor.log_std")), None
        if log_std is not None and log_std.dim() > 1:
            raise BadRequest("its noise depends on the state (use_sde), which evorl's policies cannot have")
        usual: Activation = "tanh" if kind == "policy" else "relu"
        _check_all_read(tensors, ("mlp_extractor.shared_net", prefix, head, "actor.log_std"), SB3_BESIDE)
        return Network(kind, layers, last, log_std, _activation(kwargs) or usual)
    raise BadRequest("has no network of an MlpPolicy of PPO, A2C, DQN, TD3, DDPG or SAC")


def _cleanrl(data: bytes) -> Network:
    tensors = _tensors(_loaded(data))
    if "fc_mu.weight" in tensors:
        _check_all_read(tensors, ("fc1", "fc2", "fc_mu"), CLEANRL_BESIDE)
        return Network("deterministic", _named(tensors, "fc1", "fc2"), _linear(tensors, "fc_mu"), None, "relu")
    for prefix, kind in CLEANRL:
        if layers := _sequence(tensors, prefix):
            log_std = tensors["actor_logstd"].flatten() if "actor_logstd" in tensors else None
            usual: Activation = "tanh" if kind == "policy" else "relu"
            _check_all_read(tensors, (prefix,), CLEANRL_BESIDE)
            return Network(kind, layers[:-1], layers[-1], log_std, usual)
    raise BadRequest("has no network of ppo.py, ppo_continuous_action.py, dqn.py, td3 or ddpg")


def _sequence(tensors: Mapping[str, Tensor], prefix: str) -> list[Linear]:
    """The linear layers of an ``nn.Sequential``, in order."""
    matches = (re.fullmatch(rf"{re.escape(prefix)}\.([0-9]{{1,4}})\.weight", name) for name in tensors)
    return [_linear(tensors, f"{prefix}.{n}") for n in sorted(int(match[1]) for match in matches if match)]


def _named(tensors: Mapping[str, Tensor], *names: str) -> list[Linear]:
    return [_linear(tensors, name) for name in names]


def _linear(tensors: Mapping[str, Tensor], name: str) -> Linear:
    weight, bias = tensors.get(f"{name}.weight"), tensors.get(f"{name}.bias")
    if weight is None or bias is None or weight.dim() != 2 or bias.shape != weight.shape[:1]:
        raise BadRequest(f"{name} is no linear layer with a bias")
    return weight, bias


def _together(*layers: Linear) -> Linear:
    """One layer whose outputs are those of several, side by side."""
    import torch

    return torch.cat([weight for weight, _ in layers]), torch.cat([bias for _, bias in layers])


def _check_all_read(tensors: Mapping[str, Tensor], layers: Sequence[str], beside: tuple[str, ...]) -> None:
    """Raise `BadRequest` for a tensor of neither, with which the policy would decide otherwise, and for NaN."""
    import torch

    named = "|".join(re.escape(layer) for layer in layers if layer)
    decides = re.compile(rf"({named})(\.[0-9]{{1,4}})?\.(weight|bias)|log_std|actor_logstd")
    for name, x in tensors.items():
        if decides.fullmatch(name):
            if not torch.isfinite(x).all():
                raise BadRequest(f"its {name} has numbers that are not finite")
        elif not name.startswith(beside):
            raise BadRequest(f"its {name} is of a layer or a features extractor of its own, which are not read")


def _kwargs(about: bytes | None) -> Mapping[str, Any]:
    """What SB3's JSON says of the policy's keywords, classes as words. Raises `BadRequest` for what is not read."""
    try:
        kwargs = json.loads(about or b"{}").get("policy_kwargs")
    except (ValueError, AttributeError, RecursionError):
        raise BadRequest("its data is no JSON of Stable-Baselines3") from None
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    if (extractor := _class_name(kwargs.get("features_extractor_class", EXTRACTOR))) != EXTRACTOR:
        raise BadRequest(f"its features extractor {extractor} is not read; {EXTRACTOR} is")
    return kwargs


def _activation(kwargs: Mapping[str, Any]) -> Activation | None:
    """The activation that a policy's keywords name; None if they name none. Raises `BadRequest` for another one."""
    if "activation_fn" not in kwargs:
        return None
    name = _class_name(kwargs["activation_fn"])
    if name not in ACTIVATIONS:
        raise BadRequest(f"its activation {name} is none of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _class_name(text: object) -> str:
    """``Tanh`` of ``<class 'torch.nn.modules.activation.Tanh'>``."""
    return str(text).rpartition(".")[2].strip("'> ")


# ------------------------------------------------------------------ as a learner


def _hyper(network: Network) -> Hyper:
    """The algorithm whose policies act as this one."""
    from evorl.rl.dqn import DQN
    from evorl.rl.ppo import PPO
    from evorl.rl.sac import SAC

    kind: Any = {"values": DQN, "squashed": SAC}.get(network.kind, PPO)
    hyper: Hyper = kind()
    widths, output = tuple(len(bias) for _, bias in network.hidden), "linear"
    if network.kind == "deterministic":
        output = "tanh"
    net = replace(hyper.net, hidden=widths, activation=network.activation)
    return replace(hyper, net=net if output == "linear" else replace(net, output="tanh"))


def parameters(network: Network, spec: Spec, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The network's numbers under the names of evorl's own policy; critics are 0. Raises `BadRequest` for a misfit."""
    import torch

    _check(network, spec)
    theta = {name: torch.zeros_like(x) for name, x in own.items()}
    for number, (weight, bias) in enumerate(network.hidden):
        theta[f"hidden.{number}.weight"][0], theta[f"hidden.{number}.bias"][0, 0] = weight.T, bias
    (weight, bias), log_std = _in_our_units(network, spec)
    if network.kind == "values":
        first = slice(len(bias))  # of several named rewards; the others add 0
        theta["advantage.weight"][0, :, first], theta["advantage.bias"][0, 0, first] = weight.T, bias
    else:
        theta["policy.weight"], theta["policy.bias"] = weight.clone(), bias.clone()
    if "log_std" in theta:
        theta["log_std"] = torch.full_like(bias, SURE_LOG_STD) if log_std is None else log_std.clone()
    return theta


def _check(network: Network, spec: Spec) -> None:
    """Raise `BadRequest` unless the network takes what the world shows and gives what it wants."""
    from evorl.mdp.core import Box, Discrete
    from evorl.nets.distributions import outputs

    if len(spec.inputs) != 1 or spec.inputs[0].dtype == "uint8":
        raise BadRequest("such a policy takes one array of numbers, and the world has other observations")
    size = 1
    for length in spec.inputs[0].shape:
        size *= length
    sizes = [size, *(len(bias) for _, bias in network.hidden)]
    if [weight.shape[1] for weight, _ in [*network.hidden, network.head]] != sizes:
        raise BadRequest(f"its network takes {network.hidden[0][0].shape[1] if network.hidden else '?'} numbers, "
                         f"and the world has {size}")  # fmt: skip
    wanted: type | tuple[type, ...] = {"values": Discrete, "policy": object}.get(network.kind, Box)
    count = outputs(spec.action, network.kind == "squashed")
    if not isinstance(spec.action, wanted) or len(network.head[1]) != count:
        raise BadRequest(f"its network gives {len(network.head[1])} numbers for actions, and the world takes others")
    if network.kind == "policy" and isinstance(spec.action, Box) != (network.log_std is not None):
        raise BadRequest("of policy and world one has discrete actions, and the other has not")
    if network.log_std is not None and network.log_std.shape != network.head[1].shape:
        raise BadRequest("it has not one deviation for each action")


def _in_our_units(network: Network, spec: Spec) -> tuple[Linear, Tensor | None]:
    """The head and the log deviations. A Gaussian of evorl is of half the width of a Box, around its centre."""
    from evorl.mdp.core import Box

    weight, bias = network.head
    if network.kind != "policy" or not isinstance(spec.action, Box) or network.log_std is None:
        return (weight, bias), network.log_std
    centre, half = units(spec.action)
    half = half.where(half > 0, 1)  # of a single number, which the world takes in any case
    scaled = (weight.double() / half[:, None]).float(), ((bias.double() - centre) / half).float()
    return scaled, (network.log_std.double() - half.log()).float()


def units(action: Box) -> tuple[Tensor, Tensor]:
    """Centre and half width of a Box, float64 [K] each; 0 and 1 where it has no bounds."""
    import numpy as np
    import torch

    low, high = (torch.tensor(np.array(x, np.float64)) for x in (action.low, action.high))
    finite = torch.isfinite(low) & torch.isfinite(high)
    half = torch.where(finite, (high - low) / 2, torch.ones_like(low))
    return torch.where(finite, (high + low) / 2, torch.zeros_like(low)), half
