"""Repeated actions in any world, against a slow definition on the world as it is."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tiny import Walk

from evorl.mdp.begin import begin, declares
from evorl.mdp.conformance import check
from evorl.mdp.core import StepsTogether, World
from evorl.mdp.decision_arrays import rule_actions
from evorl.mdp.duel import Duel
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.pong import Pong
from evorl.mdp.random_play import random_action
from evorl.mdp.soccer import Soccer
from evorl.mdp.volley import Volley
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, below, generator, key

GAMMA = 0.8
WORLDS: dict[str, World] = {
    "vector, one side": Pong(rounds=2, round_steps=23, frame_skip=4, skip_gamma=GAMMA),
    "vector, truncated": Volley(lives=1, time_limit=30, frame_skip=(2, 5), skip_gamma=GAMMA),
    "vector, many sides": Soccer(control="player", team_size=2, seconds=1.0, frame_skip=3, skip_gamma=GAMMA),
    "battles, masks, two rewards": Walk(sides=3, same_length=False, frame_skip=(1, 4), skip_gamma=GAMMA),
    "battles of unlike pace": Duel(side="both", frame_skip=(2, 3), skip_gamma=GAMMA),
}
EPISODES = Episodes(5, "frame skip")


def repeats(world: World, slot: int, episode: int) -> int:
    skip = world.frame_skip
    if isinstance(skip, int):
        return skip
    own = int(EPISODES(slot // world.sides, episode))
    return skip[0] + below(key("frame skip", own), skip[1] - skip[0] + 1)


class Definition:
    """Plays the world as it is, one decision of it after the other, and writes down what repeated ones are."""

    def __init__(self, world: World, slots: int) -> None:
        self.world, self.arena = world, world.arena(slots, EPISODES)
        self.decisions: list[list[tuple[Any, ...]]] = [[] for _ in range(slots)]
        self.episode = [0] * slots
        self.open: dict[int, dict[str, Any]] = {}

    def play(self, steps: int) -> None:
        spec = self.arena.spec
        actions: dict[int, Any] = {}
        for _ in range(steps):
            now = self.arena.recv()
            results = dict(now.results)
            for slot in now.slots.tolist():
                over = bool(now.terminated[slot]), bool(now.truncated[slot])
                seen = [x[slot].tobytes() for x in now.inputs]
                if slot in self.open:
                    self.open[slot]["rewards"].append(now.reward[slot].astype(float))
                legal = None if now.legal is None else now.legal[slot]
                if not self.goes_on(slot, over, legal, actions):
                    earned = self.earned(slot, len(spec.rewards))
                    final = [x[slot].tobytes() for x in now.final] if over[1] else []
                    self.decisions[slot].append((seen, earned, over, final, results.get(slot)))
                    self.episode[slot] += any(over)
                    draw = generator("action", slot, len(self.decisions[slot]))
                    actions[slot] = random_action(spec, legal, draw)
                    self.open[slot] = {"n": repeats(self.world, slot, self.episode[slot]), "rewards": []}
            self.arena.send(now.slots, np.stack([actions[slot] for slot in now.slots.tolist()]))

    def goes_on(self, slot: int, over: tuple[bool, bool], legal: Any, actions: dict[int, Any]) -> bool:
        if slot not in self.open or any(over) or len(self.open[slot]["rewards"]) == self.open[slot]["n"]:
            return False
        return legal is None or bool(legal[actions[slot][0]])

    def earned(self, slot: int, rewards: int) -> Any:
        total = np.zeros(rewards)
        for k, reward in enumerate(self.open[slot]["rewards"] if slot in self.open else []):
            total = total + GAMMA**k * reward
        return total


@pytest.mark.parametrize("name", WORLDS)
def test_decisions_are_those_of_the_definition(name: str) -> None:
    world = WORLDS[name]
    slots = 2 * world.sides
    slow = Definition(world, slots)
    slow.play(160)
    counts, ends, early = [0] * slots, 0, 0
    with closing(slow.arena), closing(begin(world, slots, EPISODES)) as arena:
        while any(count < len(rows) - 1 for count, rows in zip(counts, slow.decisions, strict=True)):
            now = arena.recv()
            results = dict(now.results)
            actions = []
            for slot in now.slots.tolist():
                if counts[slot] < len(slow.decisions[slot]):
                    seen, earned, over, final, result = slow.decisions[slot][counts[slot]]
                    assert [x[slot].tobytes() for x in now.inputs] == seen
                    np.testing.assert_allclose(now.reward[slot], earned, rtol=1e-5, atol=1e-6)
                    assert (bool(now.terminated[slot]), bool(now.truncated[slot])) == over
                    assert not over[1] or [x[slot].tobytes() for x in now.final] == final
                    assert result is None or result.items() <= results[slot].items()
                    ends += any(over)
                counts[slot] += 1
                legal = None if now.legal is None else now.legal[slot]
                actions.append(random_action(arena.spec, legal, generator("action", slot, counts[slot])))
            early += len(now.slots) < slots
            arena.send(now.slots, np.stack(actions))
    assert ends > 1 and min(counts) > 5
    assert early or isinstance(world.frame_skip, int)


@pytest.mark.slow_cases("vector, truncated", "vector, one side")
@pytest.mark.parametrize("name", WORLDS)
def test_such_a_world_conforms(name: str) -> None:
    check(WORLDS[name], slots=2 * WORLDS[name].sides, decisions=24)


def test_returns_and_lengths_are_those_of_the_world_without_discounts() -> None:
    world = Pong(rounds=2, round_steps=23, frame_skip=4, skip_gamma=0.5)
    with closing(begin(world, 1, EPISODES)) as arena:
        cost, found = 0, list[dict[str, float]]()
        while not found:
            now = arena.recv()
            assert arena.recv().results == now.results  # the same until actions are sent
            cost += now.cost
            found = [results for _, results in now.results]
            arena.send(now.slots, np.ones((len(now.slots), 1), np.int64))
    assert found[0]["length"] == cost and found[0]["return"] == found[0]["score"]


def test_the_rule_player_decides_anew_each_time() -> None:
    world = Pong(opponent="self", rounds=1, round_steps=60)
    seen = []
    for skip in (1, 4):
        with closing(begin(replace(world, frame_skip=skip), 2, EPISODES)) as arena:
            for _ in range(48 // skip + 1):
                now = arena.recv()
                last = now.inputs[0].tobytes()
                arena.send(now.slots, rule_actions(arena.spec, 2))
            seen.append(last)
    assert seen[0] == seen[1]


def test_who_repeats_actions_itself_is_left_alone() -> None:
    for world in (Gymnasium(id="CartPole-v1", frame_skip=3), Pong()):
        with closing(begin(world, 2, EPISODES)) as arena:
            assert type(arena) is type(world.arena(2, EPISODES))
    assert declares(Gymnasium(id="CartPole-v1"), "frame_skip") and not declares(Pong(), "frame_skip")
    with closing(begin(Pong(frame_skip=2), 2, EPISODES)) as arena:
        assert isinstance(arena, StepsTogether)
    with closing(begin(Walk(frame_skip=2), 2, EPISODES)) as arena:
        assert not isinstance(arena, StepsTogether)
    with closing(begin(Walk(sides=3, frame_skip=2).all_sides(), 3, EPISODES)) as arena:
        assert type(arena).__name__ == "SkippingArena"


@pytest.mark.parametrize("wrong", [0, (3, 2), (0, 1)])
def test_numbers_that_are_none(wrong: Any) -> None:
    with pytest.raises(BadRequest, match=r"frame_skip: expected an int >= 1, or \[least, most\] of such, got"):
        begin(Pong(frame_skip=wrong), 2, EPISODES)
