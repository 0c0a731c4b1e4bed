"""Policies written for Stable-Baselines3 and CleanRL: what evorl's own reader and those libraries decide with them."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from gymnasium import spaces

from benchmarks.speed.common import PEERS
from evorl.inference.file import Format, policy_file, program, read_description
from evorl.inference.linear import Linear, of_raw_inputs
from evorl.inference.module import PolicyModule
from evorl.inference.sb3 import Call, Named, pickled
from evorl.mdp.core import Action, Array, Box, Discrete, Input, MultiDiscrete, Spec
from evorl.nets.distributions import noise_size
from evorl.nets.policy import Net
from evorl.nets.statistics import CLIP, Moments
from evorl.rl import sac
from evorl.rl.a2c import A2C
from evorl.rl.core import Hyper
from evorl.rl.ddpg import DDPG
from evorl.rl.dqn import DQN
from evorl.rl.network_learner import NetworkLearner
from evorl.rl.off_policy import OffPolicy
from evorl.rl.ppo import PPO
from evorl.rl.r2d2 import R2D2
from evorl.rl.sac import SAC
from evorl.rl.td3 import TD3
from evorl.rl.vtrace import VTrace
from evorl.util.errors import BadRequest

BOX, OPEN = Box((-2.0, 0.0), (2.0, 1.0)), Box((-float("inf"),) * 2, (float("inf"),) * 2)
RELU = Net(hidden=(8,), activation="relu")


def spec(action: Action, *rewards: str) -> Spec:
    return Spec((Input("seen", (2, 3)),), action, rewards or ("reward",))


CASES: dict[str, tuple[Hyper, Spec]] = {
    "PPO": (PPO(), spec(Discrete(4))),
    "PPO of several choices": (PPO(), spec(MultiDiscrete((2, 3)))),
    "PPO of a box": (PPO(net=Net(hidden=(5,), shared=True, bias=False, log_std=-0.5)), spec(BOX, "a", "b")),
    "PPO normalised": (PPO(net=RELU, normalize_inputs=True), spec(BOX)),
    "PPO without hidden layers": (
        PPO(net=Net(hidden=(), activation="relu"), normalize_inputs="whiten"),
        spec(Discrete(3)),
    ),
    "PPO of V-trace": (VTrace(net=Net(activation="leaky_relu")), spec(Discrete(3))),
    "A2C": (A2C(), spec(OPEN)),
    "DQN": (DQN(), spec(Discrete(4))),
    "DQN of quantiles": (
        DQN(noisy=True, distribution="qr", atoms=7, normalize_inputs=True),
        spec(Discrete(4), "a", "b"),
    ),
    "TD3": (TD3(), spec(BOX)),
    "DDPG": (DDPG(), spec(BOX)),
    "DDPG normalised": (DDPG(normalize_inputs=True), spec(BOX)),
    "SAC": (SAC(net=Net(hidden=(16, 8), activation="silu", std="state")), spec(BOX, "a", "b")),
    "SAC normalised": (SAC(net=Net(hidden=(16,), activation="relu", std="state"), normalize_inputs=True), spec(BOX)),
}  # fmt: skip
OF_CLEANRL = ("PPO", "PPO of a box", "A2C", "DQN", "DQN of quantiles", "TD3", "DDPG")


def learner_of(hyper: Hyper, spec: Spec) -> NetworkLearner[Any]:
    """A learner as if it had learned: its weights are moved, and it has seen inputs."""
    learner: Any = hyper.learner(spec, 1, torch.device("cpu"))
    generator = torch.Generator().manual_seed(7)
    learner.theta.add_(0.2 * torch.randn(learner.theta.shape, generator=generator))
    if learner.moments is not None:
        learner.moments.update((3 * torch.randn(200, 2, 3, generator=generator) + 1,))
    if isinstance(learner, sac.Learner):
        learner.temperature.log.fill_(-1.5)
    return learner


def states(rows: int = 200) -> torch.Tensor:
    """Observations [B, 2, 3], some so far out that normalised ones are clipped."""
    x = 4 * torch.randn(rows, 2, 3, generator=torch.Generator().manual_seed(5))
    x[: rows // 10] *= 20
    return x


def decided(learner: NetworkLearner[Any], x: torch.Tensor) -> Array:
    """The deterministic actions [B, K]."""
    return learner.act((x,), None, torch.zeros(len(x), noise_size(learner.spec.action)), None, None).played.numpy()


def same(actual: Array, expected: Array) -> None:
    """Whether actions agree, but for rounding between two choices that are alike."""
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, atol=5e-5)
    else:
        assert (actual != expected).mean() <= 0.01 and len({*expected[:, 0].tolist()}) > 1


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, form) for name in CASES for form in ("sb3", "cleanrl") if form == "sb3" or name in OF_CLEANRL],
)
def test_evorl_reads_back_what_it_wrote(name: str, form: Format) -> None:
    learner = learner_of(*CASES[name])
    module, x = PolicyModule(learner), states()
    outputs = program(policy_file(module, form).content({}), module, form)({"seen": x.numpy()})
    same(outputs["action"], decided(learner, x))
    if module.scores in outputs:
        own = learner.forward(
            learner.theta, () if learner.moments is None else learner.moments.tensors(learner.device), (x,)
        )
        np.testing.assert_allclose(outputs[module.scores], own.raw, atol=5e-5, rtol=5e-5)


@pytest.mark.parametrize("whiten", [False, True])
def test_a_layer_normalises_and_clips(whiten: bool) -> None:
    moments, x = Moments((Input("seen", (2, 3)),), whiten), states()
    moments.update((3 * states()[20:] + 1,))
    others = torch.rand(len(x), 2) * 2 - 1
    identity = torch.eye(8), torch.zeros(8)
    clipped = through(of_raw_inputs([identity], moments, 2), torch.cat([x.flatten(1), others], 1))
    (normalised,) = moments.normalize(moments.tensors(torch.device("cpu")), (x,))
    torch.testing.assert_close(clipped, torch.cat([normalised.flatten(1), others], 1), atol=1e-5, rtol=1e-5)
    assert (normalised.abs() == CLIP).any()


def test_whitening_keeps_the_digits_of_large_inputs() -> None:
    generator = torch.Generator().manual_seed(3)
    moments = Moments((Input("seen", (3,)),), True)
    x = 1000 + 0.5 * torch.randn(500, 3, generator=generator)
    moments.update((x,))
    (normalised,) = moments.normalize(moments.tensors(torch.device("cpu")), (x,))
    layers = of_raw_inputs([(torch.eye(3), torch.zeros(3))], moments)
    torch.testing.assert_close(through(layers, x), normalised, atol=1e-5, rtol=0)  # an input's last digit is 6e-5


def through(layers: Sequence[Linear], x: torch.Tensor) -> torch.Tensor:
    for weight, bias in layers[:-1]:
        x = torch.relu(x @ weight.T + bias)
    return x @ layers[-1][0].T + layers[-1][1]


def test_a_zip_describes_itself() -> None:
    content = policy_file(PolicyModule(learner_of(*CASES["SAC"])), "sb3").content({"step": 3, "seed": 1})
    assert read_description(content) == {"step": 3, "seed": 1}


def test_pickles_are_plain() -> None:
    value = {"a": [1, -2.5, float("inf")], "b": (Call(Named("math", "hypot"), (3, 4)), Named("math", "pi"))}
    loaded = pickle.loads(f"{pickled(value)}.".encode())
    assert loaded == {"a": [1, -2.5, float("inf")], "b": (5.0, np.pi)}
    with pytest.raises(TypeError, match="no pickle of a set"):
        pickled({1})


@pytest.mark.parametrize(
    ("name", "action", "widths"),
    [
        ("PPO of several choices", spaces.MultiDiscrete([2, 3]), {"pi": [64, 64], "vf": [64, 64]}),
        ("DQN", spaces.Discrete(4), [128, 128]),
        ("SAC", spaces.Box(np.array(BOX.low, "f"), np.array(BOX.high, "f")), {"pi": [16, 8], "qf": [16, 8]}),
    ],
)
def test_a_zip_names_spaces_and_layers(name: str, action: spaces.Space[Any], widths: Any) -> None:
    """As pickles, since SB3 has nothing else for them."""
    content = policy_file(PolicyModule(learner_of(*CASES[name])), "sb3").content({"step": 3})
    data = json.loads(ZipFile(BytesIO(content)).read("data"))
    keys = ("observation_space", "action_space", "policy_kwargs")
    seen, taken, kwargs = (pickle.loads(base64.b64decode(data[key][":serialized:"])) for key in keys)
    assert seen == spaces.Box(-np.inf, np.inf, (2, 3)) and taken == action and data["num_timesteps"] == 3
    assert kwargs["net_arch"] == widths and issubclass(kwargs["activation_fn"], torch.nn.Module)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("hyper", "world", "form", "line"),
    [
        (PPO(net=Net(lstm=4)), spec(BOX), "sb3", "write no LSTM; format=onnx"),
        (R2D2(), spec(Discrete(3)), "sb3", "rescaled values of rl=r2d2"),
        (PPO(), Spec((Input("a", (2,)), Input("b", (2,))), BOX), "sb3", "or of several observations"),
        (PPO(), Spec((Input("a", (3, 36, 36), "uint8"),), BOX), "cleanrl", "no policy of pictures"),
        (PPO(), Spec((Input("a", (2,)),), Discrete(3), masked=True), "sb3", "no masks of legal actions"),
        (PPO(net=Net(std="state")), spec(BOX), "sb3", "rl.net.std=state"),
        (PPO(net=Net(output="tanh")), spec(BOX), "sb3", "rl.net.output=tanh"),
        (DQN(dueling=True), spec(Discrete(3)), "sb3", "rl.dueling"),
        (DQN(distribution="c51"), spec(Discrete(3)), "sb3", "rl.distribution=c51"),
        (TD3(critic_activation="tanh"), spec(BOX), "sb3", "rl.critic_activation"),
        (PPO(normalize_inputs=True), spec(BOX), "sb3", "normalised inputs with rl.net.activation=tanh"),
        (SAC(), spec(BOX), "cleanrl", "CleanRL's SAC computes deviations otherwise; format=sb3 writes"),
        (PPO(), spec(MultiDiscrete((2, 3))), "cleanrl", "takes one choice, and this world several"),
        (PPO(net=RELU), spec(BOX), "cleanrl", "has rl.net.activation=tanh, and this policy relu"),
        (TD3(normalize_inputs=True), spec(BOX), "cleanrl", "has 2 hidden layers, and this policy 3"),
    ],
)  # fmt: skip
def test_what_the_libraries_do_not_have_is_refused(hyper: Any, world: Spec, form: Format, line: str) -> None:
    module = PolicyModule(hyper.learner(world, 1, torch.device("cpu")))
    with pytest.raises(BadRequest, match=line) as refused:
        policy_file(module, form)
    assert refused.value.key == "format" and "; format=" in refused.value.args[0]


# ------------------------------------------------------------------ in the libraries themselves

NEEDS_PEERS = pytest.mark.skipif(not PEERS.exists(), reason="no .venv-peers: make peers")
SB3 = """
import sys
from pathlib import Path
import gymnasium, numpy, stable_baselines3, torch

for file in sorted(Path(sys.argv[1]).glob("*.zip")):
    kind, x = getattr(stable_baselines3, file.stem.split()[0]), numpy.load(file.with_suffix(".npy"))
    model = kind.load(file, device="cpu")
    action = model.predict(x, deterministic=True)[0]
    assert (model.predict(x[0], deterministic=True)[0] == action[0]).all() or action.dtype.kind == "f"
    model.predict(x)
    assert getattr(model, "log_ent_coef", None) is None or model.log_ent_coef.tolist() == [-1.5]
    seen = torch.from_numpy(x)
    with torch.no_grad():
        if hasattr(model, "critic"):
            value = sum(model.critic(seen, torch.zeros(len(x), 2)))
        else:
            value = model.q_net(seen) if hasattr(model, "q_net") else model.policy.predict_values(seen)
    numpy.savez(file.with_suffix(".npz"), action=action.reshape(len(x), -1), value=value.numpy())
    if "PPO" == file.stem:  # it goes on in an environment, whose bounds the file does not know
        class World(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-1, 1, (2, 3))
            action_space = gymnasium.spaces.Discrete(4)
            def reset(self, **_):
                return self.observation_space.sample(), {}
            def step(self, action):
                return self.observation_space.sample(), 0.0, False, True, {}
        spaces = {"observation_space": World.observation_space, "action_space": World.action_space}
        kind.load(file, env=World(), custom_objects=spaces, device="cpu").learn(64).save(file.with_suffix(".again"))
"""


def value_of(learner: NetworkLearner[Any], x: torch.Tensor) -> Array:
    """What the libraries call values: of states [B, 1], of choices [B, A], or of actions 0 the sum over critics."""
    statistics = () if learner.moments is None else learner.moments.tensors(learner.device)
    with torch.no_grad():
        if isinstance(learner, OffPolicy):
            q = learner.q_values(learner.critic.phi, learner.normalized(statistics, (x,)), torch.zeros(len(x), 2))
            return q.sum((0, 2))[:, None].numpy()
        out = learner.forward(learner.theta, statistics, (x,))
        return (out.value.sum(1, keepdim=True) if learner.hyper.policy_head else out.raw).numpy()


@pytest.mark.slow
@NEEDS_PEERS
def test_stable_baselines3_decides_the_same(tmp_path: Path) -> None:
    for name, case in CASES.items():
        content = policy_file(PolicyModule(learner_of(*case)), "sb3").content({"step": 3})
        (tmp_path / f"{name}.zip").write_bytes(content)
        np.save(tmp_path / name, states().numpy())
    done = subprocess.run([PEERS, "-W", "error", "-c", SB3, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, case in CASES.items():
        learner, theirs = learner_of(*case), np.load(tmp_path / f"{name}.npz")
        same(theirs["action"], decided(learner, states()))
        np.testing.assert_allclose(theirs["value"], value_of(learner, states()), atol=1e-4, rtol=1e-4, err_msg=name)


CLEANRL = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
import gymnasium, numpy, torch
from cleanrl import ddpg_continuous_action, dqn, ppo, ppo_continuous_action, td3_continuous_action

box = gymnasium.spaces.Box(numpy.float32([-2, 0]), numpy.float32([2, 1]))
seen = gymnasium.spaces.Box(-numpy.inf, numpy.inf, (6,))
x = torch.from_numpy(numpy.load(Path(sys.argv[1], "x.npy"))).flatten(1)

def loaded(kind, action, state):
    network = kind(SimpleNamespace(single_observation_space=seen, single_action_space=action, action_space=action))
    network.load_state_dict(state)
    return network

def read(name):
    return torch.load(Path(sys.argv[1], name + ".cleanrl_model"), weights_only=True)

with torch.no_grad():
    answers = {"PPO": loaded(ppo.Agent, gymnasium.spaces.Discrete(4), read("PPO")).actor(x).argmax(-1, keepdim=True)}
    answers["A2C"] = loaded(ppo_continuous_action.Agent, box, read("A2C")).actor_mean(x)
    for name, program in (("TD3", td3_continuous_action), ("DDPG", ddpg_continuous_action)):
        actor, *critics = read(name)
        answers[name] = loaded(program.Actor, box, actor)(x)
        values = [loaded(program.QNetwork, box, state)(x, torch.full((len(x), 2), 0.5)) for state in critics]
        answers[name + " critics"] = sum(values)
numpy.savez(Path(sys.argv[1], "answers.npz"), **{name: answer.numpy() for name, answer in answers.items()})
"""


@pytest.mark.slow
@NEEDS_PEERS
def test_cleanrl_decides_the_same(tmp_path: Path) -> None:
    cases = ("PPO", "A2C", "TD3", "DDPG")
    for name in cases:
        (tmp_path / f"{name}.cleanrl_model").write_bytes(
            policy_file(PolicyModule(learner_of(*CASES[name])), "cleanrl").content({})
        )
    np.save(tmp_path / "x", states().numpy())
    path = {"PYTHONPATH": str(PEERS.parents[1] / "cleanrl")}
    done = subprocess.run([PEERS, "-c", CLEANRL, tmp_path], capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stderr
    theirs = np.load(tmp_path / "answers.npz")
    for name in cases:
        same(theirs[name], decided(learner_of(*CASES[name]), states()))
    for name in ("TD3", "DDPG"):
        learner: Any = learner_of(*CASES[name])
        in_units = torch.tensor([[0.25, 0.0]]).expand(200, 2)  # of the world's 0.5 and 0.5
        values = learner.q_values(learner.critic.phi, (states(),), in_units).sum(0).detach()
        np.testing.assert_allclose(theirs[f"{name} critics"], values, atol=1e-4, rtol=1e-4)
