"""Exported files of every learner and network decide as the policy does, over whole episodes that begin anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from exporting import compared_on, played

from evorl.inference.check import onnx_program
from evorl.inference.file import Format, read_description
from evorl.mdp.core import Box, Input, MultiDiscrete, Spec

SMALL = "rl.net.hidden=[16]"
LSTM = ("rl.net.lstm=8", SMALL)
CASES: dict[str, tuple[str, ...]] = {
    "ppo": ("mdp=cartpole", "rl=ppo"),
    "ppo-tanh-shared": ("mdp=cartpole", "rl=ppo", "rl.net.shared=true", "rl.net.bias=false", "rl.net.output=tanh"),
    "ppo-whiten": ("mdp=cartpole", "rl=ppo", "rl.normalize_inputs=whiten", SMALL),
    "ppo-gaussian": ("mdp=pendulum", "rl=ppo", "rl.normalize_inputs=true", SMALL),
    "ppo-state-std": ("mdp=pendulum", "rl=ppo", "rl.net.std=state", "rl.net.activation=silu"),
    "ppo-lstm": ("mdp=pendulum", "rl=ppo", *LSTM),
    "a2c-leaky": ("mdp=cartpole", "rl=a2c", "rl.net.activation=leaky_relu"),
    "a3c": ("mdp=cartpole", "rl=a3c", SMALL),
    "reinforce": ("mdp=cartpole", "rl=reinforce", SMALL),
    "vtrace-lstm": ("mdp=cartpole", "rl=vtrace", *LSTM),
    "impact": ("mdp=cartpole", "rl=impact", SMALL),
    "masks": ("mdp=duel", "rl=ppo", "mdp.ground.limit=10", SMALL),
    "masks-lstm": ("mdp=duel", "rl=ppo", "mdp.ground.limit=10", *LSTM),
    "multi": ("mdp=soccer", "rl=ppo", SMALL),
    "pong": ("mdp=pong", "rl=ppo", "mdp.rounds=1", "mdp.round_steps=60", SMALL),
    "sac": ("mdp=pendulum", "rl=sac"),
    "td3": ("mdp=pendulum", "rl=td3", SMALL),
    "ddpg": ("mdp=pendulum", "rl=ddpg", SMALL, "rl.normalize_inputs=true"),
    "dqn": ("mdp=cartpole", "rl=dqn"),
    "rainbow": ("mdp=cartpole", "rl=dqn", "rl.dueling=true", "rl.noisy=true", "rl.distribution=c51", SMALL),
    "dqn-quantiles": ("mdp=cartpole", "rl=dqn", "rl.distribution=qr", SMALL),
    "r2d2": ("mdp=cartpole", "rl=r2d2", "rl.net.lstm=8", SMALL),
    "atari-nature": ("mdp=atari", "rl=dqn", "rl.net.hidden=[32]"),
    "atari-impala": ("mdp=atari", "mdp.size=42", "rl=ppo", "rl.net.encoder=impala"),
    "atari-lstm": ("mdp=atari", "mdp.size=42", "rl=ppo", "rl.net.encoder=nature", "rl.net.lstm=16"),
    "marvin": ("mdp=marvin", "rl=ppo"),
    "openspiel": ("mdp=openspiel", "mdp.game=tic_tac_toe", "rl=ppo", SMALL),
}


@pytest.mark.slow_cases(but=("masks-lstm", "sac", "rainbow"))
@pytest.mark.parametrize("case", CASES)
def test_an_onnx_file_decides_as_the_policy(case: str) -> None:
    compared = played(CASES[case], steps=60 if "atari" in case else 200)
    assert compared.agrees, (compared.difference, compared.wrong)
    assert compared.decisions > 10


ODD = Spec(
    inputs=(
        Input("a/b", (3,), "int64"), Input("", ()), Input("mask", (2, 2), "uint8"), Input("a b", (4,), "bool"),
        Input('"}, {"\x00\ud800', (1, 2, 2)), Input("stack", (2, 3), stacked=True),
    ),
    action=MultiDiscrete((3, 1, 5)),
    masked=True,
)  # fmt: skip


@pytest.mark.slow_cases(but=("onnx",))
@pytest.mark.parametrize("form", ["onnx", "unity"])
def test_a_world_of_several_observations_with_hostile_names(form: Format) -> None:
    compared = compared_on(ODD, form, lstm=4, hidden=(8,))
    assert compared.agrees, (compared.difference, compared.wrong)
    names = [port.name for port in compared.form.inputs]
    assert len({*names}) == len(names) and all(name.isidentifier() and name.isascii() for name in names)


def test_an_observation_with_the_name_of_an_output() -> None:
    spec = Spec(tuple(Input(name, (3,)) for name in ("action", "logits", "values", "next_state")), MultiDiscrete((3,)))
    for net, last in (({}, "next_state"), ({"lstm": 4}, "next_state_2")):
        compared = compared_on(spec, hidden=(8,), **net)
        assert compared.agrees, (compared.difference, compared.wrong)
        names = [port.name for port in compared.form.inputs if port.role == "observation"]
        assert names == ["action_2", "logits_2", "values", last]  # a policy has no values


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [True, False])
def test_actions_without_bounds_and_with(deterministic: bool) -> None:
    box = Box((-2.0, -np.inf, 0.0, -1.0), (2.0, np.inf, np.inf, 1.0))
    compared = compared_on(Spec((Input("x", (3,)),), box), deterministic=deterministic, hidden=())
    assert compared.agrees, (compared.difference, compared.wrong)


LOGITS = np.float32([[-0.263502, 0.25742507], [-0.16299337, 0.16138898]])


def test_a_file_of_an_earlier_version_is_read() -> None:
    """It was written by the version that its description names, and decides as it did then."""
    content = (Path(__file__).parent / "policy_v1.onnx").read_bytes()
    about = read_description(content)
    assert (about["version"], about["evorl"], about["mdp"]["id"]) == (1, "0.1.0", "CartPole-v1")
    assert about["observations"][0]["features"][0] == "position" and about["action"]["names"] == [["left", "right"]]
    outputs = onnx_program(content)({"observation": np.float32([[0.1, -0.2, 0.03, 0.4], [0, 0, 0, 0]])})
    np.testing.assert_allclose(outputs["logits"], LOGITS, atol=1e-6)
    assert outputs["action"].tolist() == [[int(right > left)] for left, right in LOGITS]


@pytest.mark.slow_cases(but=("ppo",))
@pytest.mark.parametrize("case", CASES)
def test_a_file_with_noise_draws_as_the_policy(case: str) -> None:
    compared = played(CASES[case], deterministic=False)
    assert compared.agrees, (compared.difference, compared.wrong)


@pytest.mark.slow_cases(but=("ppo-gaussian",))
@pytest.mark.parametrize("case", CASES)
def test_a_file_for_unity_decides_as_the_policy(case: str) -> None:
    compared = played(CASES[case], "unity")
    assert compared.agrees, (compared.difference, compared.wrong)


@pytest.mark.slow_cases(but=("ppo",))
@pytest.mark.parametrize("case", ["ppo", "ppo-gaussian", "ppo-whiten", "impact", "sac", "td3", "rainbow", "multi"])
def test_a_file_for_godot_decides_as_the_policy(case: str) -> None:
    compared = played(CASES[case], "godot")
    assert compared.agrees, (compared.difference, compared.wrong)


@pytest.mark.slow_cases(but=("ppo-whiten",))
@pytest.mark.parametrize("case", CASES)
def test_a_file_of_torch_decides_as_the_policy(case: str) -> None:
    compared = played(CASES[case], "torch")
    assert compared.agrees, (compared.difference, compared.wrong)
