"""Files for Unity and Godot: the names, shapes and dtypes that their loaders want, and what they cannot have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from exporting import content_of, learner_for, module_of
from onnx import TensorProto
from test_exported_policies import CASES

from evorl.inference.check import onnx_program
from evorl.inference.file import PolicyFile
from evorl.inference.godot import GodotModule, largest_above_zero
from evorl.inference.module import PolicyModule, Seen
from evorl.inference.unity import UnityModule
from evorl.mdp.core import Box, Discrete, Input, MultiDiscrete, Spec
from evorl.nets.policy import Net, Policy
from evorl.rl.ppo import PPO
from evorl.util.errors import BadRequest

SENTIS = {
    *("Abs", "Add", "And", "ArgMax", "Cast", "Clip", "Concat", "Conv", "Div", "Equal", "Erf", "Exp", "Gather", "Gemm"),
    *("Greater", "Identity", "LeakyRelu", "Less", "Log", "MatMul", "Max", "MaxPool", "Min", "Mul", "Neg", "Not", "Pow"),
    *("ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Sigmoid", "Sign", "Slice", "Softmax", "Split"),
    *("Sqrt", "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze", "Where"),
}
"""Those of our operators that Unity's manual lists as supported (Sentis 2.1, Supported ONNX operators)."""
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def policy_for(spec: Spec, form: type[PolicyModule], **net: Any) -> PolicyModule:
    return form(PPO(net=Net(**net)).learner(spec, 1, torch.device("cpu")))


def ports(model: onnx.ModelProto) -> dict[str, tuple[int, list[str | int]]]:
    """The dtype and shape of each input and output."""
    return {
        port.name: (
            port.type.tensor_type.elem_type,
            [size.dim_param or size.dim_value for size in port.type.tensor_type.shape.dim],
        )
        for port in (*model.graph.input, *model.graph.output)
    }


def test_unity_finds_the_names_of_its_loader() -> None:
    learner, world = learner_for(*CASES["masks-lstm"])
    model = onnx.load_from_string(content_of(module_of(learner, "unity"), "unity", world))
    choices = learner.spec.action
    assert isinstance(choices, (Discrete, MultiDiscrete))
    sizes = [choices.n] if isinstance(choices, Discrete) else [*choices.nvec]
    (numbers,) = learner.spec.inputs[0].shape
    assert ports(model) == {
        "obs_0": (FLOAT, ["batch", numbers]),
        "action_masks": (FLOAT, ["batch", sum(sizes)]),
        "recurrent_in": (FLOAT, ["batch", 1, 16]),
        "epsilon": (FLOAT, ["batch", sum(sizes)]),
        "version_number": (FLOAT, [1]),
        "memory_size": (FLOAT, [1]),
        "discrete_actions": (INT64, ["batch", len(sizes)]),
        "discrete_action_output_shape": (FLOAT, [1, len(sizes)]),
        "deterministic_discrete_actions": (INT64, ["batch", len(sizes)]),
        "recurrent_out": (FLOAT, ["batch", 1, 16]),
    }
    assert model.opset_import[0].version <= 15
    assert {node.op_type for node in model.graph.node} <= SENTIS
    # the loader runs a model with zeros in all inputs, which forbids every action
    inputs = {port.name: ports(model)[port.name][1] for port in model.graph.input}
    shapes = {name: [1 if size == "batch" else int(size) for size in shape] for name, shape in inputs.items()}
    feed = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    outputs = onnx_program(model.SerializeToString())(feed)
    assert (outputs["version_number"], outputs["memory_size"]) == (3.0, 16.0)
    assert outputs["discrete_action_output_shape"].tolist() == [sizes]


@pytest.mark.slow_cases(but=("ppo-gaussian",))
@pytest.mark.parametrize("case", CASES)
def test_unity_knows_every_operator_of_a_file(case: str) -> None:
    learner, world = learner_for(*CASES[case])
    model = onnx.load_from_string(content_of(module_of(learner, "unity"), "unity", world))
    assert {node.op_type for node in model.graph.node} <= SENTIS
    numbers = {constant.data_type for constant in model.graph.initializer}
    assert numbers <= {FLOAT, INT64, TensorProto.INT32, TensorProto.BOOL}


def test_unity_draws_as_the_policy_does() -> None:
    """Its normal noise becomes the noise of the policy: the drawn actions have the policy's probabilities."""
    spec = Spec((Input("x", (2,)),), Discrete(3), masked=True)
    module = policy_for(spec, UnityModule)
    run = onnx_program(PolicyFile(module, "unity").content({}))
    rows = 20_000
    epsilon = np.random.default_rng(1).standard_normal((rows, 3)).astype(np.float32)
    x = np.tile(np.float32([[1.0, -2.0]]), (rows, 1))
    allowed = np.tile(np.float32([[1, 0, 1]]), (rows, 1))
    drawn = run({"obs_0": x, "action_masks": allowed, "epsilon": epsilon})["discrete_actions"][:, 0]
    logits = module.decide(
        (torch.from_numpy(x[:1]),), torch.tensor([[True, False, True]]), None, module.no_noise
    ).scores
    wanted = logits.softmax(-1)[0].numpy()
    shares = np.bincount(drawn, minlength=3) / rows
    assert shares[1] == 0
    np.testing.assert_allclose(shares, wanted, atol=4 * np.sqrt(0.25 / rows))


def test_unity_draws_continuous_actions_within_its_range() -> None:
    spec = Spec((Input("x", (2,)), Input("y", ())), Box((-2.0, 0.0, -np.inf), (2.0, 10.0, np.inf)))
    module = policy_for(spec, UnityModule, log_std=1.0)
    assert [port.shape for port in module.inputs] == [(2,), (1,), (3,)]
    action = torch.tensor([[5.0, -5.0, 5.0]])
    assert module.taken(action).tolist() == [[1.0, -1.0, 5.0]]
    assert module.in_world(module.taken(action).numpy()).tolist() == [[2.0, 0.0, 5.0]]


@pytest.mark.parametrize(
    ("spec", "net", "why"),
    [
        (Spec((Input("x", (2,)),), Discrete(2)), {"lstm": 4}, "keeps no state"),
        (Spec((Input("x", (2,)),), Discrete(2), masked=True), {}, "no masks"),
        (Spec((Input("x", (2, 3)),), Discrete(2)), {}, "feeds one vector, and 'x' is"),
    ],
)
def test_godot_refuses_what_its_plugin_lacks(spec: Spec, net: dict[str, int], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        policy_for(spec, GodotModule, **net)


def test_unity_refuses_what_its_sensors_lack() -> None:
    with pytest.raises(BadRequest, match="sensors have 3 axes"):
        policy_for(Spec((Input("x", (2, 2, 2, 2)),), Discrete(2)), UnityModule)


def test_godot_gets_probabilities_of_each_choice() -> None:
    spec = Spec((Input("x", (2,)), Input("y", ())), MultiDiscrete((3, 2)))
    module = policy_for(spec, GodotModule)
    assert isinstance(module.network, Policy)
    with torch.no_grad():
        module.network.policy.bias -= 5.0
    x, y = torch.randn(4, 2, generator=torch.Generator().manual_seed(1)), torch.arange(4.0)
    output, state = module(torch.cat([x, y[:, None]], -1), torch.ones(4))
    logits = module.decide((x, y), None, None, module.no_noise).scores
    assert (logits < 0).all()
    torch.testing.assert_close(output[:, :3], logits[:, :3].softmax(-1))
    torch.testing.assert_close(output[:, 3:], logits[:, 3:].softmax(-1))
    assert state.tolist() == [1.0] * 4
    seen = Seen((x.numpy(), y.numpy()), None, None, np.zeros((4, 5), np.float32))
    assert module.feed(seen)["obs"].tolist() == torch.cat([x, y[:, None]], -1).tolist()
    played = module.read({"output": output.numpy()}).played
    assert played.tolist() == torch.stack([logits[:, :3].argmax(-1), logits[:, 3:].argmax(-1)], -1).tolist()


def test_the_plugin_looks_for_numbers_above_zero() -> None:
    assert largest_above_zero(np.array([[-3.0, -1.0], [0.2, 0.7]])).tolist() == [0, 1]
