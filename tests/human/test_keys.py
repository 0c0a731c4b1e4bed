"""From held keys to actions: every choice can be made, and none that is not allowed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from harness import experiment_of
from hypothesis import given
from hypothesis import strategies as st

from evorl.human.keys import action_of, bindings_of
from evorl.mdp.core import Box, Discrete, MultiDiscrete, heads
from evorl.training.train import spec
from evorl.util.errors import BadRequest


@pytest.mark.parametrize("name", ["pong", "volley", "duel"])
def test_every_choice_of_a_side_has_keys_of_its_own(name: str) -> None:
    world = experiment_of(f"mdp={name}").mdp.all_sides()
    action = spec(world).action
    for side in range(world.sides):
        bindings = bindings_of(world, action, side)
        keys = sorted({key for binding in bindings for key in binding.keys})
        combinations = [held for many in range(4) for held in itertools.combinations(keys, many)]
        actions = {tuple(action_of(bindings, action, held, None)) for held in combinations}
        for component, size in enumerate(heads(action)):
            assert {choices[component] for choices in actions} == {*range(size)}


def test_pong_and_volley_go_where_the_arrow_points() -> None:
    pong, volley = (experiment_of(f"mdp={name}").mdp.all_sides() for name in ("pong", "volley"))

    def chosen(world: Any, side: int, *held: str) -> str:
        action = Discrete(len(world.action_names[0]))
        (choice,) = action_of(bindings_of(world, action, side), action, held, None)
        return str(world.action_names[0][choice])

    assert [chosen(pong, 0), chosen(pong, 1, "ArrowUp"), chosen(pong, 0, "ArrowDown")] == ["stay", "up", "down"]
    assert [chosen(volley, side, "ArrowRight") for side in (0, 1)] == ["forward", "back"]
    assert [chosen(volley, side, "ArrowLeft", "ArrowUp") for side in (0, 1)] == ["back and jump", "forward and jump"]
    assert chosen(volley, 0, "Shift", "é") == "stay"


@given(st.lists(st.booleans(), min_size=8, max_size=8), st.sets(st.sampled_from(["1", "2", "3", "x"])))
def test_what_is_not_allowed_is_never_chosen(allowed: list[bool], held: set[str]) -> None:
    action = MultiDiscrete((5, 3))
    legal = np.array(allowed)
    legal[[4, 5]] = True
    choice = action_of(bindings_of(experiment_of("mdp=football").mdp, action, 0), action, held, legal)
    assert legal[choice[0]] and legal[5 + choice[1]]
    if held == {"2"} and legal[2]:
        assert choice[0] == 2
    if not held and legal[0] and legal[5]:
        assert choice == [0, 0]


def test_keys_cannot_play_continuous_actions() -> None:
    with pytest.raises(BadRequest, match="keys choose"):
        bindings_of(experiment_of("mdp=pong").mdp, Box((0.0,), (1.0,)), 0)
