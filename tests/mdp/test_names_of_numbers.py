"""Worlds name what their observations and actions consist of: a name for each number, and for each choice."""

from __future__ import annotations

import math
from contextlib import closing

import pytest
from harness import experiment_of

from evorl.mdp.begin import begin
from evorl.mdp.core import Box, heads
from evorl.training.train import spec
from evorl.util.seed import Episodes

NAMED = ("pong", "volley", "duel", "soccer", "marvin", "cartpole", "pendulum", "mountaincar", "acrobot")
SOCCER = (
    "soccer mdp.control=player mdp.team_size=3",
    "soccer mdp.team_size=11 mdp.continuous=true",
    "soccer mdp.control=player mdp.team_size=1 mdp.see_side=true mdp.continuous=true",
)


@pytest.mark.parametrize("words", [*NAMED, *SOCCER])
def test_every_number_and_every_choice_has_a_name(words: str) -> None:
    world = experiment_of(*f"mdp={words}".split()).mdp
    shown = spec(world)
    for observation in shown.inputs:
        names = world.feature_names[observation.name]
        assert len(names) == math.prod(observation.shape) == len({*names})
    sizes = [len(shown.action.low)] if isinstance(shown.action, Box) else [*heads(shown.action)]
    assert [len(names) for names in world.action_names] == sizes
    assert all(len({*names}) == len(names) for names in world.action_names)


@pytest.mark.parametrize("words", ["pong", "soccer", "duel", "openspiel mdp.game=kuhn_poker"])
def test_a_world_says_whether_it_draws(words: str) -> None:
    """No film is suggested of a world that does not."""
    world = experiment_of(*f"mdp={words}".split()).mdp
    with closing(begin(world, world.sides, Episodes(0))) as arena:
        arena.recv()
        assert (arena.render(0) is not None) == world.draws


def test_others_have_none() -> None:
    world = experiment_of("mdp=gymnasium", "mdp.id=LunarLander-v3").mdp
    assert (world.feature_names, world.action_names) == ({}, ())
