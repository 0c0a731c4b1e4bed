"""Whole episodes as an individual of an evolution plays them, against the rules of the world."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_toys import Games
from test_off_policy import SMALL, Drift

from evorl.rl.evaluation import EvaluationNoise
from evorl.rl.recorded_episodes import record_episodes
from evorl.rl.td3 import TD3
from evorl.util.seed import Episodes


@pytest.mark.parametrize("order", [None, 3])
def test_it_records_what_was_played(order: int | None) -> None:
    """Also where slots decide in any order. A truncated episode ends with the state that it was cut at."""
    learner = TD3(**SMALL).learner(Drift.spec, 3, torch.device("cpu"))
    learner.random.fill_(True)
    arena = Games(Drift, 8, Episodes(3), order)
    episodes, fragments = record_episodes(arena, learner, EvaluationNoise(arena, 5, deterministic=False))
    kinds = []
    for episode, one in zip(episodes, fragments, strict=True):
        x, length = one.inputs[0][:, 0], len(one.action)
        following = x[:-1] + 0.1 * (one.action[:, 0] * np.array([1.0, 2.0], np.float32)).astype(np.float32)
        np.testing.assert_allclose(x[1:-1], following[:-1], rtol=1e-6)
        np.testing.assert_allclose(one.reward[:, 0, 0], -np.square(following).sum(-1), rtol=1e-5)
        np.testing.assert_allclose(episode.rewards, one.reward[:, 0].sum(0), rtol=1e-5)
        assert one.done[:, 0].tolist() == [False] * (length - 1) + [True]
        assert one.terminated[:, 0].tolist() == [False] * (length - 1) + [bool(following[-1, 0] > 0.4)]
        assert not (following[:-1, 0] > 0.4).any()
        if not one.terminated[-1, 0]:
            assert length == 7
            np.testing.assert_allclose(one.final_inputs[0][-1, 0], following[-1], rtol=1e-6)
        kinds.append(bool(one.terminated[-1, 0]))
    assert {*kinds} == {True, False}
