"""Opponents in training with other rewards: returns of both sides are those of the world."""

from __future__ import annotations

from contextlib import closing

import pytest
from harness import experiment_of
from opponents.test_opponent_arena import PONG, against, policy, table_of

from evorl.mdp.core import World
from evorl.mdp.reward_terms import Rewarded, Terms
from evorl.opponents.arena import RETURN
from evorl.rl.evaluation import EvaluationNoise, play_slots
from evorl.training.train import spec
from evorl.util.seed import Episodes

DUEL = experiment_of("mdp=duel", "mdp.ground.limit=3").mdp.all_sides()
GAMES = 3


def returns(world: World) -> list[tuple[float, float]]:
    """Of the learner and its opponent, in the first episodes of every game."""
    with closing(against(world, GAMES, Episodes(5, "games"), table_of(world, (0.0, 1.0)))) as arena:
        seen = play_slots(arena, policy(world, 1), EvaluationNoise(arena, 0, deterministic=True), [2] * GAMES)
    return [(episode.ret, episode.results[RETURN]) for game in seen for episode in game]


@pytest.mark.parametrize("world", [PONG, DUEL], ids=["pong", "duel"])
def test_returns_of_learner_and_opponent_are_the_world_s(world: World) -> None:
    plain = returns(world)
    shaped = returns(Rewarded(world=world, terms=Terms(weights={spec(world).rewards[0]: 3.0}), gamma=0.9))
    assert shaped == plain and any(ret for both in plain for ret in both)
