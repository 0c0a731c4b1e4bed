"""The side of an observation, told by a further row: it is the true one, at all times, in every kind of arena."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from remote_games import TAG
from tiny import Walk

from evorl.mdp.begin import begin
from evorl.mdp.conformance import check
from evorl.mdp.core import EpisodeEndHook, FrameHook, StepLimit, StepsTogether, World
from evorl.mdp.duel import Duel
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.pong import Pong
from evorl.mdp.random_play import random_action
from evorl.mdp.remote import Remote
from evorl.mdp.soccer import Soccer
from evorl.mdp.volley import Volley
from evorl.util.seed import Episodes, generator

SHORT: dict[str, Any] = {"rounds": 2, "round_steps": 20, "tell_side": True}
WORLDS: dict[str, World] = {
    "pong, both": Pong(opponent="self", **SHORT),
    "pong, drawn": Pong(**SHORT),
    "pong, a battle": Pong(**SHORT, delay_ms=(0, 0.01)),
    "volley": Volley(lives=1, time_limit=40, tell_side=True),
    "soccer": Soccer(control="player", team_size=2, seconds=1.0, tell_side=True),
    "walk": Walk(sides=3, same_length=False, tell_side=True),
}
EPISODES = Episodes(7, "told side")


@pytest.mark.slow_cases(but=("walk", "pong, a battle", "soccer"))
@pytest.mark.parametrize("name", WORLDS)
def test_such_a_world_conforms(name: str) -> None:
    check(WORLDS[name], slots=2 * WORLDS[name].sides, decisions=30)


@pytest.mark.parametrize("name", WORLDS)
def test_a_slot_sees_the_side_that_its_key_gives_it_and_all_else_as_before(name: str) -> None:
    world = WORLDS[name]
    slots, draw = 4 * world.sides, generator("told", name)
    ends, sides, episode = 0, set[int](), np.zeros(slots, np.int64)
    with closing(world.arena(slots, EPISODES)) as plain, closing(begin(world, slots, EPISODES)) as told:
        assert told.spec.who == "side" and told.spec.inputs[:-1] == plain.spec.inputs
        for _ in range(90):
            before, after = plain.recv(), told.recv()
            assert (before.slots == after.slots).all()
            for slot in before.slots.tolist():
                over = bool(before.terminated[slot] or before.truncated[slot])
                game = slot // world.sides
                if over:
                    last = world.players(int(EPISODES(game, int(episode[slot]))))[slot % world.sides]
                    assert after.final[-1][slot].tolist() == np.eye(told.spec.players)[last].tolist()
                episode[slot] += over
                ends += over
                side = world.players(int(EPISODES(game, int(episode[slot]))))[slot % world.sides]
                sides.add(side)
                assert after.inputs[-1][slot].tolist() == np.eye(told.spec.players)[side].tolist()
                for mine, theirs in zip(after.inputs[:-1], before.inputs, strict=True):
                    assert (mine[slot] == theirs[slot]).all()
            legal = [None if before.legal is None else before.legal[slot] for slot in before.slots]
            actions = np.stack([random_action(plain.spec, mask, draw) for mask in legal])
            plain.send(before.slots, actions)
            told.send(before.slots, actions)
    assert ends > 2 and len(sides) > 1


@pytest.mark.slow_cases("game")
@pytest.mark.parametrize("opponent", ["self", "game"])
def test_games_of_other_programs(opponent: Any) -> None:
    with closing(Remote(command=TAG, opponent=opponent, tell_side=True)) as world:
        check(world, slots=2 * world.sides, decisions=15)
        with closing(begin(world, 8, EPISODES)) as arena:
            assert arena.spec.who == "side"
            arena.recv()


def test_the_key_gives_the_side_that_the_game_has() -> None:
    world = Pong(**SHORT)
    arena: Any = begin(world, 6, EPISODES)
    for _ in range(200):
        now = arena.recv()
        assert (now.inputs[-1].argmax(1) == arena.arena._match.players.side).all()
        arena.send(now.slots, np.ones((6, 1), np.int64))


def test_what_is_told_already_is_left_alone() -> None:
    duel, cartpole = Duel(side="both", tell_side=True), Gymnasium(id="CartPole-v1", tell_side=True)
    for world in (duel, cartpole):
        bare = replace(world, tell_side=False).arena(2, EPISODES)
        with closing(begin(world, 2, EPISODES)) as arena, closing(bare):
            assert type(arena) is type(bare)


def test_an_arena_around_another_one_can_what_that_one_can() -> None:
    with closing(begin(Walk(sides=2, tell_side=True), 2, EPISODES)) as arena:
        assert isinstance(arena, StepLimit) and isinstance(arena, FrameHook) and not isinstance(arena, StepsTogether)
        arena.step_limit = 3
        assert arena.arena.step_limit == 3  # type: ignore[attr-defined]
    ended: list[int] = []
    with closing(begin(Pong(**SHORT), 1, EPISODES)) as arena:
        assert isinstance(arena, EpisodeEndHook) and not isinstance(arena, StepLimit)
        arena.on_episode_end = lambda: ended.append(1)
        for _ in range(120):
            arena.send(arena.recv().slots, np.ones((1, 1), np.int64))
    assert len(ended) > 1


@pytest.mark.parametrize("world", [Walk(sides=2, tell_side=True), Duel(tell_side=True)], ids=["walk", "duel"])
def test_all_sides_are_told_as_well(world: Any) -> None:
    with closing(begin(world.all_sides(), 2, EPISODES)) as arena:
        who = [entry.name for entry in arena.spec.inputs].index(arena.spec.who)
        assert arena.recv().inputs[who][:, :2].tolist() == [[1, 0], [0, 1]]
