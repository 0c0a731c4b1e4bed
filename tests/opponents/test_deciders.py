"""Who decides in the places of opponents, and whose memory goes on."""

from __future__ import annotations

import numpy as np
import torch

from evorl.mdp.core import Box, Discrete, Input, Spec
from evorl.nets.policy import Net
from evorl.opponents.deciders import NO_NETWORK, Deciders
from evorl.opponents.pool import RULE
from evorl.rl.ppo import PPO

SPEC = Spec((Input("x", (3,)),), Discrete(4))
INPUTS = (torch.arange(12.0).reshape(4, 3) / 12,)


def deciders(*lstm: int) -> Deciders:
    learners = [PPO(net=Net(hidden=(8,), lstm=n)).learner(SPEC, n, torch.device("cpu")) for n in lstm]
    return Deciders(learners, 4)  # type: ignore[arg-type]


def seat(found: Deciders) -> None:
    """Give every place to the policy of the first form."""
    for place in range(4):
        found.put(place, 0, 7, found.forms[0].learner.weights())


def test_only_those_who_decide_remember() -> None:
    found, places = deciders(5, 0, 2), np.array([0, 2, 3])
    for place, form in enumerate((0, 0, 2, NO_NETWORK)):
        found.put(place, form, form, [] if form == NO_NETWORK else found.forms[form].learner.weights())
    actions = found.decide(places, INPUTS, None, torch.zeros(4, 4))
    assert actions[2].tolist() == [-1] and (actions[:2] >= 0).all()
    moved = {form: x.abs().sum((0, 2)) > 0 for form, x in found.state_dict()["carries"].items()}
    assert {form: x.tolist() for form, x in moved.items()} == {
        "0": [True, False, False, False], "2": [False, False, True, False]
    }  # fmt: skip
    assert found.state_dict()["begins"].tolist() == [False, True, False, False]


def test_a_restored_memory_decides_alike() -> None:
    first, second = deciders(5), deciders(5)
    seat(first)
    first.decide(np.arange(4), INPUTS, None, torch.zeros(4, 4))
    second.load_state_dict(first.state_dict())
    seat(second)
    for each in (first, second):
        each.decide(np.array([1, 3]), INPUTS, None, torch.ones(4, 4))
    assert torch.equal(first.state_dict()["carries"]["0"], second.state_dict()["carries"]["0"])


def test_the_rule_player_of_a_box_gets_no_number() -> None:
    spec = Spec((Input("x", (3,)),), Box((-1.0,), (1.0,)))
    learner = PPO(net=Net(hidden=(8,))).learner(spec, 0, torch.device("cpu"))
    found = Deciders([learner], 4)  # type: ignore[list-item]
    found.put(0, 0, 3, learner.weights())
    found.put(1, NO_NETWORK, RULE, [])
    actions = found.decide(np.array([0, 1]), INPUTS, None, torch.zeros(4, 1))
    assert np.isnan(actions).tolist() == [[False], [True]]
