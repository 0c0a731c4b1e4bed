"""The worlds in which the caller decides for every side."""

from __future__ import annotations

import numpy as np
import pytest

from evorl.mdp import check
from evorl.mdp.core import World
from evorl.mdp.decision_arrays import rule_actions
from evorl.mdp.duel import Duel
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.pong import Pong
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

WORLDS = {
    "pong": Pong(side="left"),
    "pong with a delay": Pong(delay_ms=(0, 0), round_steps=50, rounds=2),
    "pong of both sides": Pong(opponent="self"),
    "duel": Duel(side="knight"),
    "duel of both sides": Duel(side="both"),
    "duel with a delay": Duel(delay_ms=(0, 0)),
}


@pytest.mark.slow_cases("pong of both sides", "duel", "duel with a delay")
@pytest.mark.parametrize("name", WORLDS)
def test_every_side_is_the_callers(name: str) -> None:
    world = WORLDS[name].all_sides()
    assert world.sides == 2 and world.all_sides() == world
    assert world.players(0) == world.players(1) == (0, 1)
    check(world, slots=4, decisions=30)


@pytest.mark.parametrize("name", WORLDS)
def test_the_games_are_those_of_the_world(name: str) -> None:
    """The first state of a side does not depend on who decides for it."""
    world = WORLDS[name]

    def first_states(world: World, slots: int) -> np.ndarray:
        arena = world.arena(slots, Episodes(3, "games"))
        seen = arena.recv().inputs[0].copy()
        arena.close()
        return seen

    whole = first_states(world.all_sides(), 16).reshape(8, 2, -1)
    sides = np.array([world.players(int(Episodes(3, "games")(game, 0))) for game in range(8)])
    part = first_states(world, 8 * world.sides).reshape(8, world.sides, -1)
    assert np.array_equal(part, np.take_along_axis(whole, sides[:, :, None], 1))


def seen_of_side(world: World, side: int, decisions: int) -> list[list[tuple[list[float], list[float]]]]:
    """States and rewards of that side in each game, while the rule player decides for the other one."""
    arena, sides = world.arena(4 * world.sides, Episodes(3, "rule")), world.sides
    own, seen = side if sides == 2 else 0, [[] for _ in range(4)]
    while min(map(len, seen)) < decisions:
        now = arena.recv()
        mine = now.slots % sides == own
        for slot in now.slots[mine].tolist():
            seen[slot // sides].append((now.inputs[0][slot].tolist(), now.reward[slot].tolist()))
        actions = rule_actions(arena.spec, len(now.slots))
        actions[mine] = 1
        arena.send(now.slots, actions)
    arena.close()
    return [game[:decisions] for game in seen]


@pytest.mark.slow_cases("pong with a delay-0", "duel-1")
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("name", ["pong", "pong with a delay", "duel"])
def test_the_rule_player_decides_for_a_side_that_leaves_it_to_it(name: str, side: int) -> None:
    """Such games are those against the rule player, bit for bit."""
    world = WORLDS[name]
    assert world.takes_rule_action and world.all_sides().takes_rule_action
    assert seen_of_side(world.all_sides(), side, 300) == seen_of_side(world.one_side(side), side, 300)


def test_what_a_world_says_of_its_games_stays() -> None:
    world, whole = Duel(), Duel().all_sides()
    assert (whole.seconds_per_step, whole.side_names) == (world.seconds_per_step, world.side_names)
    assert (whole.limited, whole.longest_episode, whole.budget) == (world.limited, world.longest_episode, world.budget)


def test_a_game_of_one_side_has_no_opponent() -> None:
    with pytest.raises(BadRequest, match="the games of CartPole-v1 have one side, so no opponent"):
        Gymnasium(id="CartPole-v1").all_sides()
