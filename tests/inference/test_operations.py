"""Operations of torch as ONNX: each against torch itself, for batches of several sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from evorl.inference.graph import onnx_model
from evorl.inference.module import Port, port_names
from evorl.inference.operations import Untranslated

OTHER = torch.tensor([[0.5, -1.0, 2.0, 0.0]])
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "arithmetic": lambda x: (x + OTHER) * 2 - x / 3,
    "functions": lambda x: torch.exp(-x.abs()) + torch.erf(x) + torch.sigmoid(x) + x.sign() * (x.abs() + 1).sqrt(),
    "waves": lambda x: x.sin() * (2 * x).cos(),
    "layer-norm": lambda x: nn.functional.layer_norm(x.view(-1, 2, 2), (2, 2), OTHER.view(2, 2), 1 - OTHER.view(2, 2)),
    "layer-norm-alone": lambda x: nn.functional.layer_norm(x, (4,)),
    "logarithm": lambda x: (x.square() + 1).log() + (x.abs() + 1) ** 1.5,
    "activations": lambda x: torch.tanh(x) + torch.relu(x) + nn.functional.leaky_relu(x) + nn.functional.silu(x),
    "limits": lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0) + x.clamp(max=0) + x.clamp(-OTHER[0].abs(), OTHER[0].abs()),
    "two-transpositions": lambda x: (x.view(-1, 2, 2).permute(2, 0, 1) + 1).permute(1, 2, 0).flatten(1),
    "transpositions-at-once": lambda x: x.view(-1, 2, 2, 1).permute(3, 0, 2, 1).permute(1, 0, 2, 3).flatten(1),
    "transpositions-undone": lambda x: x.view(-1, 2, 2).movedim(-2, -1).contiguous().movedim(-1, -2).flatten(1),
    "parts": lambda x: torch.cat([x[:, 1:3] * 2, *x.split([1, 3], -1), x[:, -1:]], -1),
    "whole-parts": lambda x: x.split([4], -1)[0][:, 0:4],
    "rows": lambda x: torch.stack([x, 2 * x])[1],
    "choice": lambda x: torch.where(x > 0, x, -x) + torch.where(torch.tensor(False), x * 7, x),
    "other-choice": lambda x: torch.where(torch.tensor(True), x * 7, x),
    "truth": lambda x: ((x < 0.3) & (x != 0)).any(-1, keepdim=True).float() + (x == 0).sum(-1, keepdim=True),
    "mixed-types": lambda x: x * (x < 0.3).sum(-1, keepdim=True),
    "largest": lambda x: x.max(-1, keepdim=True).values + x.argmax(-1, keepdim=True),
    "means": lambda x: x.mean(-1, keepdim=True) + x.sum(-1, keepdim=True) + x.softmax(-1),
    "double": lambda x: ((x.double() - 1e-9) @ torch.eye(4, dtype=torch.float64)).float(),
    "zeros": lambda x: x + x.exp() * torch.zeros(1, 4),
    "constant": lambda x: torch.arange(4.0)[None] * 2,
}


class Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.function(x),)


def model_of(function: Callable[..., Tensor], constant: bool = False) -> Any:
    example = torch.zeros(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = {0: torch.export.Dim("batch", min=1)}
        program = torch.export.export(Function(function), (example,), dynamic_shapes=(rows,))
        shape = function(example).shape
        result = Port("y", "constant" if constant else "action", "float32", tuple(shape if constant else shape[1:]))
        return onnx_model(program, [Port("x", "observation", "float32", (4,))], [result])


@pytest.mark.slow_cases(but=("transpositions-at-once", "choice"))
@pytest.mark.parametrize("case", CASES)
def test_an_operation_computes_what_torch_computes(case: str) -> None:
    function, generator = CASES[case], torch.Generator().manual_seed(3)
    model = model_of(function, constant=case == "constant")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for rows in (1, 2, 7):
        x = torch.randn(rows, 4, generator=generator)
        x[0, 0] = 0
        (y,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(y, function(x).numpy(), rtol=1e-6, atol=1e-6)


def test_what_does_nothing_is_left_out() -> None:
    done = ("zeros", "transpositions-undone", "whole-parts", "choice")
    kinds = {case: [node.op_type for node in model_of(CASES[case]).graph.node] for case in done}
    assert kinds["zeros"] == ["Identity"]
    assert "Transpose" not in kinds["transpositions-undone"]
    assert kinds["whole-parts"] == ["Identity"]
    assert "Where" in kinds["choice"] and kinds["choice"].count("Where") == 1


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(Untranslated, match=r"aten\.cumsum\.default has no translation"):
        model_of(lambda x: x.cumsum(-1))


@pytest.mark.parametrize(
    ("names", "ports"),
    [
        (["game", "side"], ["game", "side"]),
        (["a/b", "a.b", "a b"], ["a_b", "a_b_2", "a_b_3"]),
        (["mask", "state", "noise"], ["mask_2", "state_2", "noise_2"]),
        (["", "日本", "\n", "_"], ["observation", "observation_2", "observation_3", "observation_4"]),
        (["0", "1st"], ["observation_0", "observation_1st"]),
        (["x" * 500, '"}, {"', "a\x00b", "\ud800"], ["x" * 60, "observation", "a_b", "observation_2"]),
        (["a_2", "a", "a"], ["a_2", "a", "a_3"]),
    ],
)
def test_names_of_any_world_become_names_of_ports(names: list[str], ports: list[str]) -> None:
    assert port_names(names, ("mask", "state", "noise")) == ports
