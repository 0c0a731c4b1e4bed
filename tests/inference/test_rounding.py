"""Rounding in a deep network is no difference between a file and its policy. A wrong weight or padding is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch

from evorl.inference.check import STEP, TOLERANCE, Compared, onnx_program, scale_of
from evorl.inference.file import PolicyFile
from evorl.inference.module import Answer, PolicyModule
from evorl.mdp.core import Box, Discrete, Input, Spec
from evorl.nets.distributions import MASKED, noise_size
from evorl.nets.policy import Net
from evorl.rl.ppo import PPO

IMAGE = Spec((Input("image", (4, 36, 36), "uint8"),), Discrete(6))


def learner_of(spec: Spec, **net: Any) -> Any:
    """A learner whose weights are moved until the numbers in its network are large."""
    learner: Any = PPO(net=Net(**net)).learner(spec, 1, torch.device("cpu"))
    learner.theta.add_(0.05 * torch.randn(learner.theta.shape, generator=torch.Generator().manual_seed(8)))
    return learner


def compared(learner: Any, model: onnx.ModelProto, rows: int = 24) -> tuple[Compared, float]:
    """The file beside the policy, and the largest difference of a number by itself."""
    beside, alone = Compared(learner, PolicyModule(learner), onnx_program(model.SerializeToString())), [0.0]
    differ = beside.differ

    def watched(expected: Any, actual: Any, scale: Any) -> None:
        alone.append(float((np.abs(expected - actual) / np.maximum(1, np.abs(expected))).max()))
        differ(expected, actual, scale)

    vars(beside)["differ"] = watched
    (seen,), draw = learner.spec.inputs, torch.Generator().manual_seed(3)
    x = 255 * torch.rand(rows, *seen.shape, generator=draw) * torch.rand(rows, *(1 for _ in seen.shape), generator=draw)
    x = x.to(torch.uint8) if seen.dtype == "uint8" else x
    beside.act((x,), None, torch.zeros(rows, noise_size(learner.spec.action)), None, None)
    return beside, max(alone)


def model_of(learner: Any) -> onnx.ModelProto:
    return onnx.load_from_string(PolicyFile(PolicyModule(learner), "onnx").content({}))


RELU: dict[str, Any] = {"encoder": "impala", "activation": "relu", "hidden": ()}
BOX = Box((0.0, -0.1), (1000.0, 0.1))


@pytest.mark.slow_cases("box")
@pytest.mark.parametrize(
    ("spec", "net", "cancels"),
    [(IMAGE, RELU, True), (Spec(IMAGE.inputs, BOX), RELU, True), (IMAGE, {"encoder": "impala"}, False)],
    ids=["logits", "box", "tanh"],
)
def test_rounding_in_a_residual_network_agrees(spec: Spec, net: dict[str, Any], cancels: bool) -> None:
    """Each number by itself may differ by more than is allowed, as its terms are much larger."""
    learner = learner_of(spec, **net)
    beside, alone = compared(learner, model_of(learner))
    assert beside.agrees and beside.difference < TOLERANCE / 5
    assert not cancels or alone > TOLERANCE


@pytest.fixture(scope="module")
def residual() -> Any:
    return learner_of(IMAGE, **RELU)


@pytest.mark.slow_cases("encoders.0.head.2.weight")
@pytest.mark.parametrize("name", ["encoders.0.sections.0.0.weight", "encoders.0.head.2.weight", "policy.bias"])
def test_a_weight_that_is_wrong_by_a_hundredth_is_found(residual: Any, name: str) -> None:
    model = model_of(residual)
    (entry,) = [entry for entry in model.graph.initializer if entry.name == name]
    weights = onnx.numpy_helper.to_array(entry).copy()
    weights.flat[np.abs(weights).argmax()] *= 1.01
    entry.CopyFrom(onnx.numpy_helper.from_array(weights, name))
    assert not compared(residual, model)[0].agrees


@pytest.mark.slow_cases(but=("0",))  # a layer like the others
@pytest.mark.parametrize("which", [0, 7, -1])
def test_a_wrong_padding_is_found(residual: Any, which: int) -> None:
    model = model_of(residual)
    pads = [x for node in model.graph.node if node.op_type == "Conv" for x in node.attribute if x.name == "pads"]
    assert pads[which].ints == [1, 1, 1, 1]
    pads[which].ints[:] = [0, 1, 2, 1]
    assert not compared(residual, model)[0].agrees


def test_the_scale_is_that_of_what_is_added_up() -> None:
    small, far = np.float32([[0.5, MASKED]]), np.float32([[0.5 + 300 * STEP, MASKED]])
    assert scale_of(small, small).tolist() == [[1.0]]
    assert scale_of(small, far)[0, 0] == pytest.approx(300, rel=1e-3)
    assert scale_of(np.float32([[-7.0, 2.0], [0.0, 0.0]]), np.float32([[-7.0, 2.0], [0.0, 0.0]])).tolist() == [[7], [1]]


@pytest.mark.parametrize(
    ("noise", "got", "wrong"),
    [((3.0, 0.0), 1, 0), ((3.0, 0.0), -1, 1), ((3.0, 0.0), 2, 1), ((0.0, 0.0), 1, 1), ((9.0, 0.0), 1, 1)],
)
def test_rounding_decides_between_choices_that_are_alike_under_their_noise(
    noise: tuple[float, float], got: int, wrong: int
) -> None:
    spec = Spec((Input("x", (2,)),), Discrete(2))
    learner: Any = PPO().learner(spec, 1, torch.device("cpu"))
    beside = Compared(learner, PolicyModule(learner), lambda _: {})
    scores, one = np.float32([[0.0, 3.0]]), np.ones((1, 1))
    beside.compare(np.array([[0]]), scores, one, Answer(np.array([[got]]), scores, None), np.float32([noise]))
    assert beside.wrong == wrong and beside.difference == 0
