"""Policies that share rows of weights: against each policy by itself, whatever the places of the others are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evorl.mdp.core import Discrete, Input, Spec
from evorl.nets.policy import Net
from evorl.opponents.grouped_policies import EMPTY, ROWS, GroupedPolicies
from evorl.rl.ppo import PPO

SPEC, PICTURES = Spec((Input("x", (5,)),), Discrete(40)), Spec((Input("picture", (1, 36, 36), "uint8"),), Discrete(40))
EXAMPLES = {
    "plain": PPO(net=Net(hidden=(16, 8))), "recurrent": PPO(net=Net(hidden=(8,), lstm=6)),
    "normalised": PPO(net=Net(hidden=(16,)), normalize_inputs="whiten"),
}  # fmt: skip


def policies(hyper: PPO, count: int, spec: Spec = SPEC) -> list[list[torch.Tensor]]:
    """Weights of policies that differ, also in the head that begins small."""
    found = []
    for seed in range(count):
        learner = hyper.learner(spec, seed, torch.device("cpu"))
        learner.theta.add_(torch.randn(len(learner.theta), generator=torch.Generator().manual_seed(seed)))
        found.append([x.clone() for x in learner.weights()])
    return found


def seated(hyper: PPO, numbers: Sequence[int], weights: Sequence[list[torch.Tensor]]) -> GroupedPolicies:
    found = GroupedPolicies(hyper.learner(SPEC, 99, torch.device("cpu")), len(numbers))
    for place, number in enumerate(numbers):
        found.put(place, number, weights[number])
    return found


def rows(places: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and noise of places; those of a place do not depend on how many there are."""
    draw = torch.Generator().manual_seed(5)
    both = torch.randn(places, 45, generator=draw)
    return both[:, :5].contiguous(), both[:, 5:].contiguous()


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=15, deadline=None)
@given(numbers=st.lists(st.integers(0, 3), min_size=1, max_size=40), data=st.data())
def test_each_place_decides_as_its_policy_by_itself(name: str, numbers: list[int], data: st.DataObject) -> None:
    hyper = EXAMPLES[name]
    weights, (seen, noise) = policies(hyper, 4), rows(len(numbers))
    found = seated(hyper, numbers, weights)
    places = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(numbers))), min_size=1))))
    carry, begins = found.learner.carry(len(numbers)), torch.ones(len(numbers), dtype=torch.bool)
    if carry is not None:
        carry += 0.5
        begins[::2] = False
    actions, after = found.decide(places, (seen,), None, noise, carry, None if carry is None else begins)
    for place, action in zip(places.tolist(), actions, strict=True):
        alone = hyper.learner(SPEC, 99, torch.device("cpu"))
        alone.load_weights(weights[numbers[place]])
        mine = slice(place, place + 1)
        memory = None if carry is None else carry[:, mine]
        wanted = alone.act((seen[mine],), None, noise[mine], memory, None if carry is None else begins[mine])
        assert action.tolist() == wanted.played[0].tolist()
        if after is not None and wanted.carry is not None:
            torch.testing.assert_close(after[:, place], wanted.carry[:, 0])
    if carry is not None and after is not None:
        others = np.setdiff1d(np.arange(len(numbers)), places)
        assert torch.equal(after[:, others], carry[:, others])


@settings(max_examples=25, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    moves=st.lists(st.tuples(st.integers(0, 29), st.integers(-1, 5)), max_size=30),
)
def test_weights_are_those_of_the_policies_after_any_moves(numbers: list[int], moves: list[tuple[int, int]]) -> None:
    """Places change their policies one by one, and the blocks stay few."""
    hyper = EXAMPLES["plain"]
    weights = policies(hyper, 6)
    found = seated(hyper, numbers, weights)
    for at, number in moves:
        place = at % len(numbers)
        numbers[place] = number
        if number < 0:
            found.leave(place)
        else:
            found.put(place, number, weights[number])
        for place, number in enumerate(numbers):
            assert number < 0 or torch.equal(found.weights_of(place)[0], weights[number][0])
    needed = len(numbers) // ROWS + 7
    assert found.blocks.places <= max(2, needed * 17 // 16)


def test_a_policy_with_new_weights_decides_by_them_everywhere() -> None:
    hyper = EXAMPLES["plain"]
    weights = policies(hyper, 3)
    found = seated(hyper, [0, 1] * 9, weights)
    found.weights_of(0)
    found.renew(1, weights[2])
    found.renew(7, weights[2])  # has no place
    for place in range(18):
        assert torch.equal(found.weights_of(place)[0], weights[2 * (place % 2)][0])
    found.clear()
    found.put(0, 1, weights[1])
    assert torch.equal(found.weights_of(0)[0], weights[1][0]) and found._number[1] == EMPTY


def test_a_decision_has_the_same_bits_beside_any_others() -> None:
    """Also where a policy is alone, has several blocks, or came after others had gone."""
    hyper = EXAMPLES["plain"]
    weights, (seen, noise) = policies(hyper, 4), rows(40)
    raw = []
    for numbers in ([0] * 40, [0, 1, 2, 3] * 10, [0] + [1] * 39):
        found = seated(hyper, [3] * 40, weights)
        found.decide(np.arange(40), (seen,), None, noise, None, None)
        for place, number in enumerate(numbers):
            found.put(place, number, weights[number])
        found._arrange()
        parameters = torch.func.vmap(found.learner.layout.unflatten)(found.blocks.weights[0])
        at = seen[found._place].unflatten(0, (found.blocks.places, -1))
        raw.append(found.learner.policy.raw_of_several(parameters, (at,)).flatten(0, 1)[found._row[0]])
    assert torch.equal(raw[0], raw[1]) and torch.equal(raw[0], raw[2])


def test_images_have_a_block_for_each_place() -> None:
    learner = PPO(net=Net(hidden=(8,))).learner(PICTURES, 0, torch.device("cpu"))
    found = GroupedPolicies(learner, 5)
    assert found.rows == 1 and found.blocks.places == 5
