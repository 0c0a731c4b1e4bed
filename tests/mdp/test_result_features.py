"""Results of the game so far in observations, against those that worlds report and sums over their rewards."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tiny import Walk

from evorl.mdp.begin import begin
from evorl.mdp.conformance import check
from evorl.mdp.core import World
from evorl.mdp.duel import Duel
from evorl.mdp.duel.characters import Ground
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.pong import Pong
from evorl.mdp.random_play import random_action
from evorl.mdp.result_features import feature_names
from evorl.mdp.reward_terms import Rewarded, Terms
from evorl.mdp.volley import Volley
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, generator

WORLDS: dict[str, World] = {
    "vector": Pong(rounds=3, round_steps=15, features=("score", "length", "return", "busy")),
    "battles": Pong(rounds=3, round_steps=15, features=("score", "length", "return", "busy"), delay_ms=(0, 0.01)),
    "truncated": Volley(lives=1, time_limit=25, features=("return_point", "win", "length")),
    "own times": Duel(side="both", features=("damage_dealt", "return_win", "length")),
    "no results of its own": Walk(sides=2, features=("return_place", "return", "length")),
    "gymnasium": Gymnasium(id="CartPole-v1", time_limit=9, features=("return",)),
    "other scales": Gymnasium(
        id="Pendulum-v1", time_limit=36, frame_skip=3, reward_scale=0.01, features=("return", "length")
    ),
    "cut": Duel(side="both", features=("return_win", "length"), ground=Ground(limit=2.0)),
}
EPISODES = Episodes(3, "features")


@pytest.mark.parametrize("name", WORLDS)
def test_they_are_sums_so_far_and_at_the_end_what_is_reported(name: str) -> None:
    world = WORLDS[name]
    slots, draw, ends = 2 * world.sides, generator("features", name), 0
    with closing(world.arena(slots, EPISODES)) as plain, closing(begin(world, slots, EPISODES)) as arena:
        rewards, length = np.zeros((slots, len(plain.spec.rewards))), [0] * slots
        acted = np.zeros(slots, bool)
        for _ in range(90):
            before, now = plain.recv(), arena.recv()
            results = dict(now.results)
            for slot in now.slots.tolist():
                seen, over = now.inputs[-1][slot], bool(before.terminated[slot] or before.truncated[slot])
                if acted[slot]:
                    rewards[slot] += before.reward[slot]
                    length[slot] += 1
                if over:
                    known = results[slot] | sums(plain.spec.rewards, rewards[slot], length[slot])
                    if before.truncated[slot]:
                        np.testing.assert_allclose(now.final[-1][slot], [known[x] for x in world.features], rtol=1e-5)
                    rewards[slot], length[slot], ends = 0, 0, ends + 1
                general = sums(plain.spec.rewards, rewards[slot], length[slot])
                for place, feature in enumerate(world.features):
                    if feature in general:
                        np.testing.assert_allclose(seen[place], general[feature], rtol=1e-5, atol=1e-6)
                    if feature == "score":  # of Pong, whose reward is the point
                        assert seen[place] == general["return"]
            acted[now.slots] = True
            legal = [None if before.legal is None else before.legal[slot] for slot in before.slots]
            actions = np.stack([random_action(plain.spec, mask, draw) for mask in legal])
            plain.send(before.slots, actions)
            arena.send(now.slots, actions)
    assert ends > 1


def sums(names: tuple[str, ...], rewards: Any, length: int) -> dict[str, float]:
    named = {f"return_{name}": float(x) for name, x in zip(names, rewards, strict=True)}
    return {"return": float(rewards.sum()), "length": float(length), **named}


@pytest.mark.parametrize("name", ["vector", "own times", "truncated"])
def test_such_a_world_conforms_also_with_every_other_key(name: str) -> None:
    world = replace(WORLDS[name], frame_skip=(1, 3), tell_side=True)
    check(world, slots=2 * world.sides, decisions=20)


def test_a_vector_world_and_its_battles_show_the_same() -> None:
    shown = []
    for name in ("vector", "battles"):
        with closing(begin(WORLDS[name], 1, EPISODES)) as arena:
            rows = []
            for number in range(60):
                now = arena.recv()
                rows.append(now.inputs[-1][0].tolist())
                arena.send(now.slots, np.array([[number % 3]]))
        shown.append(rows)
    assert shown[0] == shown[1]


def test_a_potential_may_name_them() -> None:
    world = WORLDS["vector"]
    assert feature_names(world)["results"] == world.features
    assert "results" not in feature_names(Pong())
    rewarded = Rewarded(world=world, terms=Terms(potential={"score": 2.0, "length": 0.1}), gamma=1.0)
    with closing(begin(rewarded, 1, EPISODES)) as arena, closing(begin(world, 1, EPISODES)) as plain:
        for number in range(40):
            now, before = arena.recv(), plain.recv()
            if number and not before.terminated[0]:
                added = 2.0 * float(before.reward[0, 0]) + 0.1
                np.testing.assert_allclose(now.reward[0, 0], before.reward[0, 0] + added, atol=1e-5)
            for each in (arena, plain):
                each.send(now.slots, np.array([[number % 3]]))


@pytest.mark.parametrize(
    ("world", "text"),
    [
        (Pong(features=("scor",)), "features: no result scor is known during a game; did you mean score?"),
        (Walk(features=("fitness",)), "features: no result fitness is known during a game"),
        (Pong(features=("score", "score")), "features: expected each name once, got"),
    ],
)
def test_what_is_refused(world: World, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        begin(world, 2, EPISODES)
