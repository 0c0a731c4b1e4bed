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
from evorl.mdp.soccer.players import commands
from evorl.mdp.soccer.rules import Commands
from evorl.training.train import spec


@pytest.mark.parametrize("words", ["mdp=pong", "mdp=volley", "mdp=duel", "mdp=soccer mdp.control=player"])
def test_every_choice_of_a_side_has_keys_of_its_own(words: str) -> None:
    world = experiment_of(*words.split()).mdp.all_sides()
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
        assert choice.tolist() == [0, 0]


def test_a_pair_of_keys_chooses_the_ends_of_a_continuous_action() -> None:
    world = experiment_of("mdp=pettingzoo", "mdp.id=mpe2.simple_tag_v3").mdp
    action = Box((-2.0, 0.5, -np.inf), (3.0, 1.0, np.inf))
    bindings = bindings_of(world, action, 0)

    def chosen(*held: str) -> list[float]:
        return list(action_of(bindings, action, held, None))

    assert chosen() == [0.0, 0.5, 0.0]
    assert chosen("ArrowRight", "ArrowUp", "d") == [3.0, 1.0, 1.0]
    assert chosen("ArrowLeft", "a") == [-2.0, 0.5, -1.0]
    many = Box((-1.0,) * 12, (1.0,) * 12)
    assert action_of(bindings_of(world, many, 0), many, ("w",), None).tolist() == [0, 0, 0, 1] + [0] * 8


@pytest.mark.parametrize("continuous", [False, True])
def test_players_of_soccer_run_where_the_arrow_points_and_do_what_the_letter_says(continuous: bool) -> None:
    """Held keys, to the commands of both captains' players on the field, which has x to the right and y upward."""
    world = experiment_of("mdp=soccer", f"mdp.continuous={str(continuous).lower()}").mdp.all_sides()
    action, turn = spec(world).action, np.repeat(np.float32([1, -1]), 2)

    def commanded(*held: str) -> Commands:
        sides = [action_of(bindings_of(world, action, side), action, held, None) for side in (0, 1)]
        return commands(world, np, np.reshape(sides, (1, 4, -1)), continuous, turn)

    moves = {"ArrowRight": (1, 0), "ArrowUp": (0, 1), "ArrowLeft": (-1, 0), "ArrowDown": (0, -1)}
    for first, second in itertools.pairwise([*moves, "ArrowRight"]):
        assert np.allclose(commanded(first, "d").move[:, 0].T, [moves[first], (1, 0)] * 2, atol=1e-6)
        both = np.add(moves[first], moves[second]) / np.sqrt(2)
        assert np.allclose(commanded(first, second).move[:, 0].T, [both, (0, 0)] * 2, atol=1e-6)
    shots = commanded("k", "h")
    assert shots.kick.tolist() == [[world.body.shot, 0] * 2] and shots.tackle.tolist() == [[False, True] * 2]
