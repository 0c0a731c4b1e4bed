"""Policies of Stable-Baselines3 and CleanRL, from files that are written here as those libraries write them.

Neither library is needed. A zip of SB3 has ``policy.pth``, the state of its policy by torch.save, and ``data``, JSON in
which everything else is text or a pickle (stable_baselines3/common/save_util.py). CleanRL saves a state by torch.save.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import QUICK, go
from torch import Tensor, nn

from evorl import evaluate
from evorl.jobs.foreign_policies import foreign_learner, is_foreign
from evorl.jobs.run_players import ends_of
from evorl.mdp.core import Action, Box, Discrete, Input, Spec
from evorl.nets.distributions import noise_size
from evorl.util.errors import BadRequest

ACTIVATIONS: dict[str, type[nn.Module]] = {"Tanh": nn.Tanh, "ReLU": nn.ReLU}
BOX = Box((-2.0, 0.0), (2.0, 1.0))
WORLD = Spec(inputs=(Input("observation", (4,)),), action=Discrete(3))
OPEN = Box((-float("inf"),) * 2, (float("inf"),) * 2)


def spec(action: Action, inputs: int = 4) -> Spec:
    return Spec(inputs=(Input("observation", (inputs,)),), action=action)


def mlp(sizes: list[int], activation: type[nn.Module], last: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, o in pairwise(sizes):
        layers += [nn.Linear(i, o), activation()]
    return nn.Sequential(*layers if last else layers[:-1])


def named(**parts: nn.Module) -> OrderedDict[str, Tensor]:
    state: OrderedDict[str, Tensor] = OrderedDict()  # a plain one, as a generic alias would be pickled along
    for name, module in parts.items():
        for key, value in module.state_dict().items():
            state[f"{name.replace('__', '.')}.{key}"] = value
    return state


def write_sb3(path: Path, state: Any, activation: str | None = None) -> str:
    kwargs: dict[str, Any] = {":type:": "<class 'dict'>", ":serialized:": "gASVAAAAAAAAAAB9lC4="}
    if activation is not None:
        kwargs["activation_fn"] = f"<class 'torch.nn.modules.activation.{activation}'>"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"policy_kwargs": kwargs, "gamma": 0.99}))
        data = io.BytesIO()
        torch.save(state, data)
        archive.writestr("policy.pth", data.getvalue())
        archive.writestr("_stable_baselines3_version", "2.7.0")
    return f"sb3:{path}"


def write_cleanrl(path: Path, state: Any) -> str:
    torch.save(state, path)
    return f"cleanrl:{path}"


def decided(word: str, world: Spec, x: Tensor, noise: Tensor | None = None) -> np.ndarray:
    """What the world receives in the states ``x`` [B, I]."""
    learner = foreign_learner(word, world, "policy")
    nothing = torch.zeros(len(x), noise_size(world.action))
    decision = learner.act((x,), None, nothing if noise is None else noise, None, None)
    return decision.played.numpy()


@pytest.fixture
def states() -> Tensor:
    torch.manual_seed(3)
    return torch.randn(64, 4)


def actor_critic(outputs: int, activation: str, critic: int = 7) -> tuple[OrderedDict[str, Tensor], nn.Module]:
    """The state of SB3's ActorCriticPolicy, and its actor."""
    kind = ACTIVATIONS[activation]
    policy, value = mlp([4, 8, 6], kind, last=True), mlp([4, critic], kind, last=True)
    action = nn.Linear(6, outputs)
    with torch.no_grad():
        action.weight *= 10  # so that all actions are taken
    state = named(mlp_extractor__policy_net=policy, mlp_extractor__value_net=value, action_net=action)
    return state | named(value_net=nn.Linear(critic, 1)), nn.Sequential(policy, action)


@pytest.mark.parametrize("activation", [None, "Tanh", "ReLU"])
def test_ppo_with_discrete_actions(tmp_path: Path, states: Tensor, activation: str | None) -> None:
    state, actor = actor_critic(3, activation or "Tanh")
    word = write_sb3(tmp_path / "a.zip", state, activation)
    expected = actor(states).argmax(-1).numpy()
    assert (decided(word, spec(Discrete(3)), states)[:, 0] == expected).all() and len({*expected.tolist()}) > 1
    gumbel = -torch.empty(64, 3).exponential_().log()
    drawn = decided(word, spec(Discrete(3)), states, gumbel)[:, 0]
    assert (drawn == (actor(states) + gumbel).argmax(-1).numpy()).all()


@pytest.mark.parametrize("action", [BOX, OPEN], ids=["bounded", "open"])
@pytest.mark.parametrize("library", ["sb3", "cleanrl"])
def test_ppo_with_real_actions_is_clipped_and_not_scaled(
    tmp_path: Path, states: Tensor, action: Box, library: str
) -> None:
    log_std = torch.tensor([-0.5, 0.3])
    low, high = np.array(action.low), np.array(action.high)
    if library == "sb3":
        state, actor = actor_critic(2, "Tanh")
        state |= {"log_std": log_std}
    else:
        actor = mlp([4, 8, 8, 2], nn.Tanh)
        state = named(actor_mean=actor, critic=mlp([4, 8, 1], nn.Tanh)) | {"actor_logstd": log_std[None]}
    name = "action_net" if library == "sb3" else "actor_mean.4"
    for part in ("weight", "bias"):
        state[f"{name}.{part}"] = 3 * state[f"{name}.{part}"]  # so that some are clipped
    mean = 3 * actor(states).detach()
    word = write_sb3(tmp_path / "a.zip", state) if library == "sb3" else write_cleanrl(tmp_path / "a", state)
    np.testing.assert_allclose(decided(word, spec(action), states), mean.numpy().clip(low, high), atol=1e-5)
    noise = torch.randn(64, 2)
    drawn = (mean + log_std.exp() * noise).numpy().clip(low, high)
    np.testing.assert_allclose(decided(word, spec(action), states, noise), drawn, atol=1e-5)


@pytest.mark.parametrize("library", ["sb3", "cleanrl"])
def test_dqn(tmp_path: Path, states: Tensor, library: str) -> None:
    values = mlp([4, 16, 12, 3], nn.ReLU)
    if library == "sb3":
        word = write_sb3(tmp_path / "a.zip", named(q_net__q_net=values, q_net_target__q_net=values))
    else:
        word = write_cleanrl(tmp_path / "a", named(network=values))
    assert (decided(word, spec(Discrete(3)), states)[:, 0] == values(states).argmax(-1).numpy()).all()


@pytest.mark.parametrize("library", ["sb3", "cleanrl"])
def test_td3_is_scaled_to_the_bounds(tmp_path: Path, states: Tensor, library: str) -> None:
    actor = mlp([4, 16, 2], nn.ReLU)
    if library == "sb3":
        word = write_sb3(tmp_path / "a.zip", named(actor__mu=actor, critic__qf0=mlp([6, 8, 1], nn.ReLU)))
    else:
        first, second, last = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 2)
        actor = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
        state = named(fc1=first, fc2=second, fc_mu=last) | {"action_scale": torch.ones(2), "action_bias": torch.ones(2)}
        word = write_cleanrl(tmp_path / "a", (state, named(fc1=nn.Linear(6, 8))))
    low, high = np.array(BOX.low), np.array(BOX.high)
    expected = low + (torch.tanh(actor(states)).detach().numpy() + 1) / 2 * (high - low)
    for noise in (None, torch.randn(64, 2)):
        np.testing.assert_allclose(decided(word, spec(BOX), states, noise), expected, atol=1e-5)


def test_sac(tmp_path: Path, states: Tensor) -> None:
    body, mean, deviation = mlp([4, 16, 8], nn.ReLU, last=True), nn.Linear(8, 2), nn.Linear(8, 2)
    word = write_sb3(tmp_path / "a.zip", named(actor__latent_pi=body, actor__mu=mean, actor__log_std=deviation))
    low, high = np.array(BOX.low), np.array(BOX.high)
    for noise in (torch.zeros(64, 2), torch.randn(64, 2)):
        u = mean(body(states)) + deviation(body(states)).clamp(-20, 2).exp() * noise
        expected = low + (torch.tanh(u).detach().numpy() + 1) / 2 * (high - low)
        np.testing.assert_allclose(decided(word, spec(BOX), states, noise), expected, atol=1e-5)


# ------------------------------------------------------------------ what is refused


class Executed:
    """Unpickling it would call something."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("executed"),))


def _no_zip(path: Path) -> str:
    path.write_bytes(b"PK\x03\x04 nonsense")
    return f"sb3:{path}"


def _without_policy(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", "{}")
    return f"sb3:{path}"


def _fifo(path: Path) -> str:
    os.mkfifo(path)
    return f"cleanrl:{path}"


def _sparse(path: Path) -> str:
    path.touch()
    os.truncate(path, 1 << 40)
    return f"sb3:{path}"


def _garbage(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("policy.pth", b"\x80\x04K\x01.")
    return f"sb3:{path}"


EXTRACTOR = json.dumps({"policy_kwargs": {"features_extractor_class": "<class 'lab.Mine'>"}}).encode()


def _empty(path: Path) -> str:
    path.touch()
    return f"cleanrl:{path}"


def _cut(path: Path) -> str:
    word = write_cleanrl(path, named(network=mlp([4, 8, 3], nn.ReLU)))
    os.truncate(path, path.stat().st_size // 2)
    return word


def _with(path: Path, part: str, content: bytes) -> str:
    """A zip of SB3 with another part."""
    parts = {"policy.pth": saved(actor_critic(3, "Tanh")[0]), "data": b"{}", part: content}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return f"sb3:{path}"


def saved(state: Any) -> bytes:
    data = io.BytesIO()
    torch.save(state, data)
    return data.getvalue()


def _spoilt(state: OrderedDict[str, Tensor], number: float) -> OrderedDict[str, Tensor]:
    """The state in float64 with this number in the first bias."""
    state = OrderedDict({name: x.double() for name, x in state.items()})
    next(x for name, x in state.items() if name.endswith("bias"))[0] = number
    return state


@pytest.mark.parametrize(
    ("write", "line"),
    [
        (lambda path: f"sb3:{path}", "cannot be read: No such file"),
        (_fifo, "cannot be read: it is no regular file"),
        (_sparse, "cannot be read: it has 1,099,511,627,776 bytes, and at most 1,073,741,824 are read"),
        (_no_zip, "is no zip of Stable-Baselines3"),
        (_without_policy, "is no zip of Stable-Baselines3: it has no policy.pth"),
        (_garbage, "its policy.pth cannot be read as tensors"),
        (lambda path: write_sb3(path, {"a": Executed()}), "its policy.pth cannot be read as tensors: it is cut off"),
        (lambda path: write_cleanrl(path, Executed()), ": cannot be read as tensors: it is cut off, damaged or holds "),
        (_empty, "is empty, and holds no tensors"),
        (_cut, ": cannot be read as tensors: it is cut off"),
        (lambda path: _with(path, "policy.pth", b""), "its policy.pth is empty"),
        (lambda path: _with(path, "data", b"{"), "its data is no JSON of Stable-Baselines3"),
        (lambda path: _with(path, "data", b"[1]"), "its data is no JSON of Stable-Baselines3"),
        (lambda path: _with(path, "data", EXTRACTOR), "its features extractor Mine is not read; FlattenExtractor is"),
        *(
            (lambda path, name=name: write_sb3(path, actor_critic(3, "Tanh")[0] | {name: torch.eye(4)}),
             f"its {name} is of a layer or a features extractor of its own")
            for name in ("features_extractor.net.0.weight", "pi_features_extractor.weight", "mlp_extractor.norm.weight")
        ),
        (
            lambda path: write_cleanrl(path, named(network=mlp([4, 8, 3], nn.ReLU), norm=nn.Linear(4, 4))),
            "its norm.weight is of a layer or a features extractor of its own",
        ),
        *(
            (lambda path, bad=bad: write_cleanrl(path, _spoilt(named(network=mlp([4, 8, 3], nn.ReLU)), bad)),
             "its network.0.bias has numbers that are not finite")
            for bad in (float("nan"), float("-inf"), 1e300)
        ),
        (lambda path: write_sb3(path, _spoilt(actor_critic(3, "Tanh")[0], float("nan"))), "that are not finite"),
        (lambda path: write_cleanrl(path, {"network.0.weight": torch.eye(4).to_sparse()}), "is no plain tensor"),
        (lambda path: write_cleanrl(path, torch.zeros(3)), "holds no state of a network"),
        (lambda path: write_sb3(path, {"other": torch.zeros(3)}), "has no network of an MlpPolicy"),
        (lambda path: write_cleanrl(path, {"other": torch.zeros(3)}), "has no network of ppo.py"),
        (lambda path: write_cleanrl(path, {"network.0.weight": torch.zeros(3, 4)}), "network.0 is no linear layer"),
        (lambda path: write_cleanrl(path, {"network.0.weight": torch.zeros(8, 4, 3, 3)}), "has convolutions"),
        (lambda path: write_sb3(path, actor_critic(3, "Tanh")[0], "ELU"), "its activation ELU is none of Tanh"),
        (lambda path: write_sb3(path, actor_critic(3, "Tanh")[0] | {"log_std": torch.zeros(6, 3)}), "use_sde"),
        (lambda path: write_sb3(path, actor_critic(2, "Tanh")[0]), "gives 2 numbers for actions"),
        (lambda path: write_cleanrl(path, named(network=mlp([5, 8, 3], nn.ReLU))), "takes 5 numbers, and the world"),
        (lambda path: write_sb3(path, named(actor__mu=mlp([4, 8, 3], nn.ReLU))), "the world takes others"),
        (lambda path: write_sb3(path, actor_critic(3, "Tanh")[0] | {"log_std": torch.zeros(3)}), "the other has not"),
    ],
)  # fmt: skip
def test_what_is_no_policy_for_the_world_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadRequest, match=line) as refused:
        foreign_learner(write(tmp_path / "a.zip"), spec(Discrete(3)), "policy")
    assert refused.value.key == "policy" and not (tmp_path / "executed").exists()


def test_other_observations_are_refused(tmp_path: Path) -> None:
    word = write_sb3(tmp_path / "a.zip", actor_critic(3, "Tanh")[0])
    two = Spec(inputs=(Input("a", (2,)), Input("b", (2,))), action=Discrete(3))
    for world in (two, Spec(inputs=(Input("image", (4,), "uint8"),), action=Discrete(3))):
        with pytest.raises(BadRequest, match="takes one array of numbers"):
            foreign_learner(word, world, "policy")


def test_a_critic_that_is_not_finite_does_not_decide(tmp_path: Path, states: Tensor) -> None:
    state, actor = actor_critic(3, "Tanh")
    state["value_net.bias"] = torch.tensor([float("nan")])
    word = write_sb3(tmp_path / "a.zip", state)
    assert (decided(word, spec(Discrete(3)), states)[:, 0] == actor(states).argmax(-1).numpy()).all()


def test_words() -> None:
    assert is_foreign("sb3:a.zip") and is_foreign("cleanrl:/b/c")
    assert not any(map(is_foreign, ("runs/sb3", "sb3", "rule", "runs/a@best", "other:x")))


# ------------------------------------------------------------------ in commands


@pytest.mark.slow
def test_it_is_judged_on_the_episodes_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert go("mdp=cartpole", *QUICK, "budget.steps=128", f"hydra.run.dir={run}") == 0
    state, actor = actor_critic(2, "Tanh")
    with torch.no_grad():  # a hand-made policy: push to where the pole falls
        for x in actor.parameters():
            x.zero_()
        policy, head = actor[0], actor[1]
        policy[0].weight[0] = torch.tensor([0.0, 0.3, 2.0, 2.0])
        policy[2].weight[0, 0], head.weight[1, 0], head.weight[0, 0] = 1.0, 9.0, -9.0
    state = OrderedDict({**state, **named(mlp_extractor__policy_net=policy, action_net=head)})
    word = write_sb3(tmp_path / "hand.zip", state)
    capsys.readouterr()
    assert evaluate.main([f"run={run}", f"policy={word}", "episodes=4", "json=true"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["policy"] == word and report["return_mean"] > 150 and report["episodes"] == 4
    for words, key in ((["policy=hand.zip"], "policy"), ([f"policy={word}", f"export={tmp_path / 'x'}"], "export")):
        assert evaluate.main([f"run={run}", *words]) == 2
        assert capsys.readouterr().err.startswith(f"evorl: {key}: ")


@pytest.mark.slow
def test_it_plays_in_a_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from evorl.matches.players import read

    run = tmp_path / "run"
    pong = ("mdp=pong", "mdp.rounds=1", "mdp.round_steps=20")
    assert go(*pong, *QUICK, "budget.steps=256", f"hydra.run.dir={run}") == 0
    entry = read([str(run), "rule"])
    learner: Any = entry.players[0].learner
    inputs = int(np.prod(learner.spec.inputs[0].shape))
    actions = learner.spec.action.n
    word = write_cleanrl(
        tmp_path / "rival", named(actor=mlp([inputs, 8, actions], nn.Tanh), critic=nn.Linear(inputs, 1))
    )
    out = tmp_path / "matrix"
    players = f"players=[{run},{word},rule]"
    capsys.readouterr()
    assert evaluate.main(["matrix=true", players, "games=4", f"out={out}"]) == 0
    names = [player["name"] for player in json.loads((out / "matrix.json").read_bytes())["players"]]
    assert names == ["run", "cleanrl:rival", "rule"]


def test_files_of_one_name_are_told_apart_by_their_folders() -> None:
    assert ends_of([Path("a/policy"), Path("b/policy"), Path("a/policy")]) == ["a/policy", "b/policy", "a/policy"]
    assert ends_of([Path("a/one"), Path("a/two")]) == ["one", "two"] and ends_of([]) == []
