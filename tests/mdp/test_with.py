"""``with`` closes arenas and samplers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

import evorl
from evorl.mdp.core import Closes
from evorl.mdp.gymnasium.world import Gymnasium
from evorl.mdp.pong.world import Pong
from evorl.rl.ppo import PPO
from evorl.rl.sampler import Sampler
from evorl.util.seed import Episodes

PACKAGE = Path(evorl.__file__).parent
WORLDS = {
    "arrays": Pong(), "gymnasium": Gymnasium(id="CartPole-v1"), "wrapped": Gymnasium(id="CartPole-v1", frame_skip=2)
}  # fmt: skip


def noted(arena: Any, closed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note each time that an arena is closed."""
    close = type(arena).close
    monkeypatch.setattr(type(arena), "close", lambda self: (closed.append(self), close(self)))


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_an_arena_is_closed(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Any]()
    with pytest.raises(ZeroDivisionError), world.arena(2, Episodes(0)) as arena:
        noted(arena, closed, monkeypatch)
        assert len(arena.recv().slots) and not closed
        raise ZeroDivisionError
    assert len(closed) == 1 and closed[0] is arena


def test_a_sampler_closes_its_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Any]()
    with Sampler(Pong(), PPO(slots=2, horizon=4, minibatch=8), 1, torch.device("cpu"), 0) as sampler:
        noted(sampler.arena, closed, monkeypatch)
    assert len(closed) == 1 and closed[0] is sampler.arena


def test_every_class_of_an_arena_can_be_closed_so() -> None:
    """Those with the methods of an arena, or a base class among those that have them."""
    files = [path for folder in ("mdp", "opponents") for path in (PACKAGE / folder).rglob("*.py")]
    classes = [node for path in files for node in ast.parse(path.read_text()).body if is_arena(node)]
    derived = {Closes.__name__}
    for _ in classes:
        derived |= {node.name for node in classes if derived & {ast.unparse(base) for base in node.bases}}
    assert len(classes) >= 10 and {node.name for node in classes} <= derived


def is_arena(node: Any) -> bool:
    methods = {part.name for part in getattr(node, "body", []) if isinstance(part, ast.FunctionDef)}
    return isinstance(node, ast.ClassDef) and {"recv", "send", "render", "close"} <= methods
