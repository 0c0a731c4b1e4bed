"""Files of one side's network, beside the policy of all sides in games that both play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from exporting import content_of, learner_for, module_of
from harness import QUICK, go

from evorl.export import main
from evorl.inference.check import Compared
from evorl.inference.file import Format, program, read_description
from evorl.inference.side import of_side
from evorl.mdp.core import Discrete, Input, MultiDiscrete, SideSpec, Spec, heads
from evorl.nets.distributions import draw_noise
from evorl.nets.policy import Net
from evorl.rl.ppo import PPO
from evorl.util.errors import BadRequest
from evorl.util.seed import generator

pytest.importorskip("onnxruntime")
ROW, MAP, WHO = Input("row", (5,)), Input("map", (2, 3)), Input("who", (3,))
UNLIKE = SideSpec((Input("row", (2,)), MAP, WHO), MultiDiscrete((2, 3)))
SPEC = Spec(
    (ROW, MAP, WHO), MultiDiscrete((4, 3)), players=3, who="who", masked=True,
    each=(SideSpec((ROW, None, WHO), Discrete(4)), UNLIKE, UNLIKE),
)  # fmt: skip

SHORT = ("mdp.rounds=2", "mdp.round_steps=40", "rl.net.hidden=[8]")
CASES: dict[str, tuple[str, ...]] = {
    "told": ("mdp=pong", *SHORT, "rl.policies=each", "rl.normalize_inputs=whiten"),
    "seen": ("mdp=duel", "mdp.ground.limit=5", "rl.policies=[[1],[0]]", "rl.net.lstm=4", "rl.normalize_inputs=true"),
}


def compared(case: str, side: int, form: Format, deterministic: bool, spoil: float = 0.0) -> Compared:
    learner, world = learner_for(*CASES[case])
    own = of_side(learner, side)
    own.learner.theta.add_(spoil)
    module = module_of(own.learner, form, deterministic)
    beside = Compared(learner, module, program(content_of(module, form, world), module, form), own)
    beside.play_games(world, 3, 6, 200, deterministic=deterministic)
    return beside


@pytest.mark.slow_cases(but=("told-0-onnx-True", "seen-1-onnx-False"))
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("form", ["onnx", "torch"])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_a_file_decides_as_the_network_of_its_side(case: str, side: int, form: Format, deterministic: bool) -> None:
    made = compared(case, side, form, deterministic)
    assert made.agrees and made.decisions > 10, (made.difference, made.wrong, made.decisions)
    assert "side" not in [port.name for port in made.form.inputs]


def test_another_network_does_not_agree() -> None:
    assert not compared("told", 1, "onnx", True, spoil=0.01).agrees


def test_sides_that_observe_and_do_other_things() -> None:
    learner: Any = PPO(net=Net(hidden=(8,)), policies="each", normalize_inputs=True).learner(
        SPEC, 1, torch.device("cpu")
    )
    learner.theta.add_(0.1)
    draw = torch.Generator().manual_seed(2)
    for side, sizes in ((0, (4,)), (2, (2, 3))):
        own = of_side(learner, side)
        assert heads(own.learner.spec.action) == sizes
        module = module_of(own.learner, "onnx", False)
        world = learner_for(*CASES["told"])[1]
        beside = Compared(learner, module, program(content_of(module, "onnx", world), module, "onnx"), own)
        for _ in range(5):
            row, seen = torch.randn(6, 5, generator=draw), torch.randn(6, 2, 3, generator=draw)
            who = torch.eye(3)[[0, 2, 1, 2, 0, 2]]
            row[who[:, 0] == 0, 2:], seen[who[:, 0] == 1] = 0, 0
            legal = torch.rand(6, 7, generator=draw) < 0.6
            legal[:, [0, 4]] = True
            noise = torch.from_numpy(draw_noise(SPEC.action, generator("sides", side), (6,)))
            beside.act((row, seen, who), legal, noise, None, None)
        assert beside.agrees and beside.decisions == (10 if side == 0 else 15)


def test_a_side_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadRequest, match="side: the game has the sides 0 to 1"):
        of_side(learner_for(*CASES["told"])[0], 2)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "right.onnx"
    assert go(*QUICK, "mdp=pong", *SHORT, "rl.policies=each", "budget.steps=128", f"hydra.run.dir={run}") == 0
    capsys.readouterr()
    assert main([f"run={run}", f"out={out}"]) == 2
    assert "side: this run has a network for each side (rl.policies), and a file holds one: side=0" in (
        capsys.readouterr().err
    )
    assert main([f"run={run}", f"out={out}", "side=1"]) == 0
    about = read_description(out.read_bytes())
    assert about["side"] == 1 and [port["name"] for port in about["inputs"]] == ["game"]
