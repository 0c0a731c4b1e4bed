"""Files hold the actions that the environment takes: choices counted as it counts them, and the bounds of a side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from harness import QUICK, go

from evorl.api.policy import Policy
from evorl.export import main
from evorl.inference.check import Compared
from evorl.inference.file import Format, PolicyFile, description, program, read_description
from evorl.inference.module import PolicyModule
from evorl.inference.side import of_side
from evorl.inference.units import environment_units, start_of
from evorl.mdp.core import World
from evorl.mdp.gymnasium.world import Gymnasium
from evorl.mdp.pettingzoo.world import PettingZoo
from evorl.nets.policy import Net
from evorl.rl.ppo import PPO
from evorl.training.train import spec
from evorl.util.errors import BadRequest

pytest.importorskip("onnxruntime")
ParallelEnv = pytest.importorskip("pettingzoo").ParallelEnv
CPU = torch.device("cpu")


class Counting(gymnasium.Env[Any, Any]):
    """Its choices begin with 5. Noise is observed, so that a policy takes all of them."""

    observation_space: Any = Box(-9, 9, (3,))
    action_space: Any = Discrete(4, start=5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.t += 1
        return self._seen(), 0.0, self.t == 20, False, {}

    def _seen(self) -> Any:
        return self.np_random.normal(size=3).clip(-9, 9).astype(np.float32)


class Heads(Counting):
    action_space = MultiDiscrete([2, 3], start=[1, -2])


class Places(Counting):
    """It is in one of five places, which are counted from -2."""

    observation_space = Discrete(5, start=-2)

    def _seen(self) -> Any:
        return np.int64(self.np_random.integers(-2, 3))


def learner_of(world: World, **keys: Any) -> Any:
    learner: Any = PPO(net=Net(hidden=(8,)), **keys).learner(spec(world), 1, CPU)
    learner.theta.add_(0.5 * torch.randn(learner.theta.shape, generator=torch.Generator().manual_seed(7)))
    return learner


def compared(world: World, learner: Any, form: Format = "onnx", side: int | None = None, blind: bool = False) -> Any:
    """A file beside its policy; ``blind``: it counts choices from 0."""
    of = None if side is None else of_side(learner, side)
    own = learner if of is None else of.learner
    encode = environment_units(world, learner.spec, own.spec.action, side)
    module = PolicyModule(own, start=None if blind else start_of(encode, own.spec.action))
    run = program(PolicyFile(module, form).content(description(module, form, world, {})), module, form)
    beside = Compared(learner, module, run, of, encode)
    beside.play_games(world, 3, 2, 100, deterministic=True)
    return beside


@pytest.mark.parametrize("form", ["onnx", "torch"])
@pytest.mark.parametrize(("name", "start"), [("Counting", (5,)), ("Heads", (1, -2))])
def test_choices_are_counted_as_the_environment_does(name: str, start: tuple[int, ...], form: Format) -> None:
    world = Gymnasium(id=f"{__name__}:{name}", time_limit=50)
    learner = learner_of(world)
    beside = compared(world, learner, form)
    assert beside.agrees and beside.decisions >= 40 and beside.form.start == start
    x = np.random.Generator(np.random.PCG64(1)).normal(size=(50, 3)).astype(np.float32)
    taken = beside.run({"observation": x})["action"]
    acted = np.reshape(Policy(learner, world).act(x), (50, -1))
    assert taken.tolist() == acted.tolist() and len({*map(tuple, taken.tolist())}) > 1
    assert taken.min(0).tolist() >= [*start]


def test_a_discrete_observation_is_one_hot() -> None:
    world = Gymnasium(id=f"{__name__}:Places", time_limit=50)
    learner = learner_of(world)
    learner.theta.mul_(3)
    beside, places = compared(world, learner), np.arange(-2, 3)
    (port,) = beside.form.inputs
    assert beside.agrees and (port.dtype, port.shape) == ("float32", (5,))
    taken = beside.run({port.name: np.eye(5, dtype=np.float32)[places + 2]})["action"]
    assert taken[:, 0].tolist() == Policy(learner, world).act(places) and len({*taken[:, 0].tolist()}) > 1


def test_the_comparison_sees_a_file_that_counts_from_0() -> None:
    world = Gymnasium(id=f"{__name__}:Counting", time_limit=50)
    beside = compared(world, learner_of(world), blind=True)
    assert beside.wrong == beside.decisions and not beside.agrees


def test_the_command_says_where_choices_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "policy.onnx"
    words = ("mdp=gymnasium", f"mdp.id={__name__}:Counting", f"trust=[{__name__}]", "mdp.time_limit=50")
    assert go(*QUICK, *words, "budget.steps=128", f"hydra.run.dir={run}") == 0
    assert main([f"run={run}", f"out={out}", f"trust=[{__name__}]"]) == 0
    about = read_description(out.read_bytes())
    assert about["action"]["start"] == [5] and about["action"]["n"] == 4 and about["check"]["wrong"] == 0
    capsys.readouterr()
    for form, suffix in (("unity", "onnx"), ("godot", "onnx"), ("sb3", "zip"), ("cleanrl", "cleanrl_model")):
        other = tmp_path / f"{form}.{suffix}"
        assert main([f"run={run}", f"out={other}", f"format={form}", f"trust=[{__name__}]"]) == 2
        why = f"the environment counts its choices from 5, and {form} from 0; format=onnx has its numbers"
        assert capsys.readouterr().err == f"evorl: format: {why}\n" and not other.exists()


# ------------------------------------------------------------------ sides

ACTIONS = {
    "starts": (Discrete(2, start=5), Discrete(3, start=-1)),
    "a start": (Discrete(3, start=2), Discrete(3, start=2)),
    "bounds": (Box(0, 9, (2,)), Box(-2, 0, (1,))),
    "heads": (Discrete(2), MultiDiscrete([3, 2])),
}


class Sides(ParallelEnv):  # type: ignore[misc]  # PettingZoo's classes have no types for mypy
    """Agents that see noise for nine moves, with the actions of a case."""

    metadata = {"name": "sides", "render_modes": []}  # noqa: RUF012

    def __init__(self, case: str, render_mode: Any = None) -> None:
        self.case, self.possible_agents, self.render_mode = case, ["ant", "bee"], render_mode

    def observation_space(self, agent: str) -> Any:
        return Box(-9, 9, (3,))

    def action_space(self, agent: str) -> Any:
        return ACTIONS[self.case][self.possible_agents.index(agent)]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.draw, self.t, self.agents = np.random.Generator(np.random.PCG64(seed)), 0, [*self.possible_agents]
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert all(self.action_space(agent).contains(action) for agent, action in actions.items()), actions
        self.t += 1
        results = dict.fromkeys(actions, 0.0), dict.fromkeys(actions, False), dict.fromkeys(actions, self.t == 9)
        self.agents = [*actions] if self.t < 9 else []
        return self._seen(), *results, {agent: {} for agent in actions}

    def _seen(self) -> Any:
        return {agent: self.draw.normal(size=3).clip(-9, 9).astype(np.float32) for agent in self.possible_agents}


def sides(case: str) -> PettingZoo:
    return PettingZoo(id=f"{__name__}:Sides", kwargs={"case": case})


def test_a_network_of_each_side_counts_as_its_side() -> None:
    world = sides("starts")
    learner = learner_of(world, policies="each")
    for side, start in ((0, (5,)), (1, (-1,))):
        beside = compared(world, learner, side=side)
        assert beside.agrees and beside.decisions >= 18 and beside.form.start == start
    with pytest.raises(BadRequest, match=r"run: the sides of this network count their choices from \[5\] and \[-1\]"):
        compared(world, learner_of(world))


def test_a_network_of_all_sides_counts_as_they_do() -> None:
    world = sides("a start")
    beside = compared(world, learner_of(world))
    assert beside.agrees and beside.form.start == (2,)
    assert compared(world, learner_of(world), blind=True).wrong == beside.decisions


def test_a_network_of_each_side_has_the_bounds_of_its_side() -> None:
    """Those of a network of all sides are from -1 to 1, of which each agent takes its own range."""
    world = sides("bounds")
    learner = learner_of(world, policies="each")
    for side, low, high in ((0, 0, 9), (1, -2, 0)):
        beside = compared(world, learner, side=side)
        assert beside.agrees and beside.form.spec.action.low[0] == low and beside.form.spec.action.high[0] == high
    assert compared(world, learner_of(world)).agrees


def test_sides_of_other_choices_share_a_network_that_counts_from_0() -> None:
    world = sides("heads")
    assert compared(world, learner_of(world)).form.start == (0, 0)
    assert compared(world, learner_of(world, policies="each"), side=0).agrees
