"""A reward of one's own beside a world's, against slow definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
from harness import experiment_of

from evorl.mdp.conformance import check
from evorl.mdp.core import Arena, Array, StepsTogether, World
from evorl.mdp.random_play import random_action
from evorl.mdp.shaped import Kind, RewardNetwork, Scales, Shaped, numbers, scales
from evorl.training.train import spec
from evorl.util.seed import Episodes

UNIT = Scales(np.zeros(3), np.ones(3))


def test_the_network_is_that_of_its_weights_one_by_one() -> None:
    draw = np.random.default_rng(0)
    known = Scales(np.array([1.0, -2.0, 0.5]), np.array([2.0, 1.0, 0.1]))
    weights, x = draw.normal(size=RewardNetwork.weights(3, 2)), draw.normal(size=(4, 3))
    network = RewardNetwork(weights, 2, 0.7, known)
    w1, b1, w2, b2 = weights[:6].reshape(2, 3), weights[6:8], weights[8:10], weights[10]
    for row, got in zip(x, network((x[:, :1], x[:, 1:])), strict=True):
        total = b2
        for unit in range(2):
            inside = b1[unit]
            for k in range(3):
                inside += w1[unit, k] * (row[k] - known.mean[k]) / known.deviation[k]
            total += w2[unit] * math.tanh(inside)
        assert got == pytest.approx(0.7 * math.tanh(total))
    linear = RewardNetwork(np.array([1.0, 2.0, 3.0, 4.0]), 0, 1.0, UNIT)
    assert linear((np.array([[0.1, -0.2, 0.3]]),))[0] == pytest.approx(math.tanh(0.1 - 0.4 + 0.9 + 4))
    assert RewardNetwork.weights(3, 0) == 4


def f(inputs: tuple[Array, ...]) -> Array:
    return np.asarray(0.5 + inputs[0].reshape(len(inputs[0]), -1).astype(np.float64).sum(1) / 7)


WORLDS: dict[str, tuple[str, ...]] = {
    "truncated and terminated": ("mdp=cartpole", "mdp.time_limit=12"),
    "two sides at their own times": ("mdp=duel", "mdp.side=both", "mdp.ground.limit=3"),
    "two sides together": ("mdp=pong", "mdp.opponent=self", "mdp.rounds=1", "mdp.round_steps=20"),
}


def world(name: str) -> World:
    made: World = experiment_of(*WORLDS[name]).mdp
    return made


def played(arena: Arena, decisions: int, after: Callable[[int], None]) -> None:
    draw = np.random.default_rng(0)
    for step in range(decisions):
        now = arena.recv()
        after(step)
        choices = [_legal(arena, None if now.legal is None else now.legal[slot], draw) for slot in now.slots]
        arena.send(now.slots, np.array(choices))


def _legal(arena: Arena, mask: Array | None, draw: np.random.Generator) -> Array:
    return random_action(arena.spec, mask, draw)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("kind", ["immediate", "potential"])
def test_what_is_added_is_what_the_observations_say(name: str, kind: Kind) -> None:
    """Beside the plain arena under the same actions, one slot and one decision at a time."""
    gamma = 0.9
    plain, shaped = (made.arena(4, Episodes(3)) for made in (world(name), Shaped(
        world=world(name), kind=kind, reward=f, gamma=gamma
    )))  # fmt: skip
    assert isinstance(plain, StepsTogether) == isinstance(shaped, StepsTogether)
    with closing(plain), closing(shaped):
        acted: dict[int, float] = {}
        draw, ends = np.random.default_rng(0), 0
        for _ in range(120):
            a, b = plain.recv(), shaped.recv()
            assert a.slots.tolist() == b.slots.tolist() and a.cost == b.cost
            for (slot, own), (same, told) in zip(a.results, b.results, strict=True):
                assert slot == same and told == {"return": told["return"], **own}
            for slot in a.slots.tolist():
                expected = float(a.reward[slot, 0])
                if slot in acted:
                    if kind == "immediate":
                        expected += acted[slot]
                    else:
                        inputs = a.final if a.truncated[slot] else a.inputs
                        following = (
                            0.0 if a.terminated[slot] else float(f(tuple(x[slot : slot + 1] for x in inputs))[0])
                        )
                        expected += gamma * following - acted[slot]
                    ends += int(a.terminated[slot] or a.truncated[slot])
                assert b.reward[slot, 0] == pytest.approx(expected, abs=1e-6)
                assert b.reward[slot, 1:].tolist() == a.reward[slot, 1:].tolist()
                acted[slot] = float(f(tuple(x[slot : slot + 1] for x in a.inputs))[0])
            actions = np.array([_legal(plain, None if a.legal is None else a.legal[slot], draw) for slot in a.slots])
            plain.send(a.slots, actions)
            shaped.send(b.slots, actions)
    assert ends > 2


def test_a_potential_adds_to_an_episode_only_what_its_beginning_is_worth() -> None:
    """sum gamma^t F_t = -f(s_0) of a terminated episode."""
    gamma = 0.95
    arena = Shaped(world=world("truncated and terminated"), kind="potential", reward=f, gamma=gamma).arena(
        1, Episodes(0)
    )
    began, total, t, seen = math.nan, 0.0, 0, 0

    def after(step: int) -> None:
        nonlocal began, total, t, seen
        now = arena.recv()  # the same until actions are sent
        if step:
            total += gamma**t * (float(now.reward[0, 0]) - 1)  # a reward of 1 each step
            t += 1
        if now.terminated[0]:
            assert total == pytest.approx(-began, abs=1e-5)
            seen += 1
        if not step or now.terminated[0] or now.truncated[0]:
            began, total, t = float(f(now.inputs)[0]), 0.0, 0

    with closing(arena):
        played(arena, 600, after)
    assert seen > 3


@pytest.mark.parametrize("name", WORLDS)
def test_it_follows_the_interface(name: str) -> None:
    inner = world(name)
    shaped = Shaped(world=inner, kind="potential", reward=f, gamma=0.9)
    assert shaped.evaluation_world() == inner.evaluation_world() and shaped.sides == inner.sides
    check(shaped, slots=2 * shaped.sides, decisions=60)


def test_scales_are_a_function_of_the_world() -> None:
    made = world("truncated and terminated")
    a, b = scales(made), scales(made)
    assert a.mean.tolist() == b.mean.tolist() and len(a.mean) == numbers(spec(made)) == 4
    assert (a.deviation > 0).all() and abs(a.mean[0]) < 1
