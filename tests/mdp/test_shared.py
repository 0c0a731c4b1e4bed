"""What the worlds of a process share: when it is made, and when it is closed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evorl.mdp.core import World
from evorl.mdp.duel import Duel
from evorl.mdp.football import Football
from evorl.mdp.football.process import POOLS
from evorl.mdp.reward_terms import Rewarded, Terms
from evorl.mdp.shared import Shared


class Thing:
    def __init__(self, settings: str) -> None:
        self.settings, self.open = settings, True

    def close(self) -> None:
        assert self.open
        self.open = False


def test_it_outlives_copies_of_a_world_while_somebody_holds_it() -> None:
    shared = Shared(Thing)
    let_go = shared.use("a")
    assert not shared._all, "nothing is made before it is needed"
    shared.close("a")
    first = shared["a"]
    for _ in range(3):  # individuals
        ended = shared.use("a")
        assert shared["a"] is first
        ended()
        shared.close("a")
        assert first.open
    let_go()
    assert not first.open and not shared._all
    assert shared["a"] is not first


def test_it_stays_for_the_next_world_if_nobody_closed_one() -> None:
    shared = Shared(Thing)
    let_go, first = shared.use("a"), shared["a"]
    let_go()
    assert first.open
    shared.close("a")
    assert not first.open


def test_who_held_what_was_never_made_leaves_nothing() -> None:
    shared = Shared(Thing)
    let_go = shared.use("a")
    shared.close("a")
    let_go()
    assert not shared._users and not shared._unwanted


@pytest.mark.parametrize("wrapped", [False, True])
def test_engines_of_football_outlive_copies_of_a_world(wrapped: bool) -> None:
    own = Football(scenario="academy_empty_goal", engine="gfootball")
    world: World = Rewarded(world=own, terms=Terms(), gamma=1.0) if wrapped else own
    let_go, pool = world.hold(), POOLS[own.scenario]
    replace(own).close()
    assert not pool._closed
    let_go()
    assert pool._closed
    Duel().hold()()  # other worlds share nothing
