"""Atari's Pong from images: what is seen, how an episode goes, and a run that learns from it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from harness import QUICK, fingerprint, go

from evorl.mdp.atari.world import ID, Atari
from evorl.mdp.core import Discrete, Input
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes


@pytest.fixture
def env() -> Iterator[Any]:
    made = gymnasium.make(ID, game="pong", sticky=0.0, render_mode="rgb_array", disable_env_checker=True)
    yield made
    made.close()


def test_four_pictures_of_84_by_84_and_the_actions_that_do_something() -> None:
    arena = Atari().arena(2, Episodes(0))
    assert arena.spec.inputs == (Input("observation", (4, 84, 84), "uint8"),) and arena.spec.action == Discrete(6)
    arena.close()
    breakout = Atari(kwargs={"game": "breakout"}).arena(1, Episodes(0))
    assert breakout.spec.action == Discrete(4)
    breakout.close()


def test_smaller_pictures_show_the_same_game() -> None:
    small, large = (
        gymnasium.make(ID, game="pong", sticky=0.0, size=size, disable_env_checker=True) for size in (42, 84)
    )
    assert small.observation_space.shape == (4, 42, 42)
    seen, shown = (np.asarray(env.reset(seed=3)[0], float) for env in (small, large))
    for step in range(200):
        by_area = shown.reshape(4, 42, 2, 42, 2).mean((2, 4))
        assert np.abs(by_area - seen).mean() < 4  # of 255: all but roundings
        (seen, *a), (shown, *b) = (env.step(step // 9 % 6) for env in (small, large))
        seen, shown = seen.astype(float), shown.astype(float)
        assert a[:3] == b[:3]
    small.close()
    large.close()


def test_a_step_adds_the_newest_picture_and_drops_the_oldest(env: Any) -> None:
    before, _ = env.reset(seed=1)
    assert not before[:3].any() and before[3].any()
    for _ in range(60):
        seen, *_ = env.step(2)
        assert (seen[:3] == before[1:]).all()
        before = seen
    assert (seen[3] != seen[2]).any()
    assert (env.render() == seen[3][..., None]).all() and env.render().shape == (84, 84, 3)


def test_a_player_without_actions_loses_every_point(env: Any) -> None:
    env.reset(seed=1)
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, _ = env.step(0)
        rewards.append(reward)
        over = terminated or truncated
    assert terminated and not truncated
    assert sum(rewards) == -21 and set(rewards) == {-1.0, 0.0}
    env.reset(seed=2)
    assert not env.step(0)[2]  # its next episode has begun


def test_an_episode_is_its_seed_and_its_actions(env: Any) -> None:
    def episode(seed: int) -> bytes:
        seen = [env.reset(seed=seed)[0]]
        seen += [env.step(action)[0] for action in np.random.default_rng(0).integers(6, size=80)]
        return np.stack(seen).tobytes()

    first = episode(7)
    assert episode(8) != first
    assert episode(7) == first


def test_a_run_learns_from_images_and_resumes_to_the_bit(tmp_path: Path) -> None:
    small = ("rl.slots=2", "rl.horizon=8", "rl.minibatch=16", "rl.passes=1", "checkpoint.every=0")
    words = {word.partition("=")[0]: word for word in (*QUICK, "mdp=atari", "mdp.time_limit=60", *small)}.values()
    assert go(*words, "budget.steps=48", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    assert go(*words, "budget.steps=16", f"hydra.run.dir={tmp_path / 'halves'}") == 0
    assert go(f"resume={tmp_path / 'halves'}", "budget.steps=48") == 0
    stopped = [16]
    assert fingerprint(tmp_path / "halves", aside=stopped) == fingerprint(tmp_path / "whole", aside=stopped)


def test_without_ale_py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ale_py"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "evorl.mdp.atari.game", raising=False)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(BadRequest, match=r"evorl/Atari-v0 needs more than is installed: .* -e '\.\[atari\]'") as caught:
        Atari().ready()
    assert caught.value.key == "id"
