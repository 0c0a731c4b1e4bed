"""Atari games: both protocols against wrappers written out from their definitions, exact starts, scores, and a run."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from harness import QUICK, experiment_of, fingerprint, go, train_in
from hypothesis import given
from hypothesis import strategies as st

import evorl.mdp
from evorl.cluster.processes import Processes
from evorl.mdp.atari import Atari
from evorl.mdp.atari.arena import AtariArena, learner_reward
from evorl.mdp.atari.console import Console, start_of
from evorl.mdp.atari.pictures import Shrink, areas
from evorl.mdp.core import Array, Discrete, Input
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, generator, uniform

NO_FRAMESKIP = Atari(sticky=0.0, noop_max=30, fire_reset=True, episodic_life=True)
SMALL = ("mdp.size=36", "mdp.time_limit=60", "rl.slots=2", "rl.horizon=8", "rl.minibatch=16", "rl.passes=1")


@contextmanager
def playing(world: Atari, slots: int = 1, seed: int = 0) -> Iterator[AtariArena]:
    arena = world.arena(slots, Episodes(seed))
    assert isinstance(arena, AtariArena)
    try:
        yield arena
    finally:
        arena.close()


def step(arena: AtariArena, *actions: int) -> Any:
    arena.send(np.arange(arena.slots), np.array(actions)[:, None])
    return arena.recv()


# ------------------------------------------------------------------ the wrappers of the papers, written out


class Frames:
    """The game itself: an action per frame, sticky. `score` is what its screen shows."""

    def __init__(self, world: Atari, episodes: Episodes) -> None:
        self.world, self.episodes, self.console, self.number = world, episodes, Console(world.game), -1
        start = start_of(world.game)
        self.codes = start.all_actions if world.full_action_space else start.minimal_actions
        self.finished: list[float] = []

    def reset(self) -> Array:
        self.number += 1
        self.key = self.episodes(0, self.number)
        self.console.load_state(start_of(self.world.game).state)
        self.screen, self.last, self.score, self.draws = start_of(self.world.game).frame, 0, 0, 1
        if self.world.noop_max:  # NoopResetEnv
            for _ in range(1 + int(uniform(self.key, 0) * self.world.noop_max)):
                self.console.act(0)
            self.screen = self.console.ale.getScreenGrayscale()
        return self.screen

    def step(self, action: int) -> tuple[Array, int, bool]:
        if uniform(self.key, self.draws) >= self.world.sticky:
            self.last = self.codes[action]
        self.draws += 1
        points = self.console.act(self.last)
        self.score += points
        self.screen = self.console.ale.getScreenGrayscale()
        if over := self.console.over():
            self.finished.append(self.score)
        return self.screen, points, over


class MaxAndSkip:
    def __init__(self, env: Frames, skip: int) -> None:
        self.env, self.skip, self.reset = env, skip, env.reset

    def step(self, action: int) -> tuple[Array, int, bool]:
        frames: deque[Array] = deque(maxlen=2)
        total = 0
        for _ in range(self.skip):
            frame, points, over = self.env.step(action)
            frames.append(frame)
            total += points
            if over:
                break
        return np.max(frames, axis=0), total, over


class EpisodicLife:
    def __init__(self, env: MaxAndSkip) -> None:
        self.env, self.game_over, self.lives = env, True, 0

    def step(self, action: int) -> tuple[Array, int, bool]:
        frame, points, self.game_over = self.env.step(action)
        lives = self.env.env.console.lives()
        lost = 0 < lives < self.lives
        self.lives = lives
        return frame, points, self.game_over or lost

    def reset(self) -> Array:
        if self.game_over:
            frame = self.env.reset()
        else:
            frame, _, over = self.env.step(0)
            if over:
                frame = self.env.reset()
        self.game_over, self.lives = False, self.env.env.console.lives()
        return frame


class FireReset:
    def __init__(self, env: EpisodicLife) -> None:
        self.env, self.step = env, env.step

    def reset(self) -> Array:
        self.env.reset()
        for action in (1, 2):
            frame, _, over = self.env.step(action)
            if over:
                frame = self.env.reset()
        return frame


class Stacked:
    """WarpFrame, ClipRewardEnv and FrameStack."""

    def __init__(self, env: Any, size: int, stack: int) -> None:
        self.env, self.size, self.pictures = env, size, deque[Array](maxlen=stack)

    def warp(self, frame: Array) -> Array:
        rows, columns = (np.kron(np.eye(n // len_), area) for n, len_, area in self._parts(frame))
        total = rows[0].sum() * columns[0].sum()
        return np.rint(rows @ frame.astype(float) @ columns.T / total).astype(np.uint8)

    def _parts(self, frame: Array) -> Iterator[tuple[int, int, Array]]:
        for length in frame.shape:
            area = areas(length, self.size)
            yield self.size, len(area), area

    def reset(self) -> Array:
        picture = self.warp(self.env.reset())
        self.pictures.extend([picture] * 4)
        return np.stack(self.pictures)

    def step(self, action: int) -> tuple[Array, float, bool]:
        frame, points, over = self.env.step(action)
        self.pictures.append(self.warp(frame))
        return np.stack(self.pictures), float(np.sign(points)), over


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "decisions"),
    [
        (replace(NO_FRAMESKIP, game="breakout"), 500),
        (replace(NO_FRAMESKIP, game="qbert", sticky=0.25), 400),
        (Atari(game="breakout"), 250),
        (Atari(game="pong", full_action_space=True, noop_max=5), 60),
    ],
    ids=["v4-breakout", "v4-qbert-sticky", "v5-breakout", "v5-pong-all-actions"],
)
def test_a_game_is_that_of_the_published_wrappers(world: Atari, decisions: int) -> None:
    episodes = Episodes(3)
    raw = Frames(world, episodes)
    skipping = MaxAndSkip(raw, world.frame_skip)
    oracle = Stacked(FireReset(EpisodicLife(skipping)) if world.fire_reset else skipping, world.size, world.stack)
    draw, results, lives = generator("actions"), list[float](), 0
    with playing(world, seed=3) as arena:
        assert (arena.recv().inputs[0][0] == oracle.reset()).all()
        for _ in range(decisions):
            action = int(draw.integers(len(raw.codes)))
            now, (seen, reward, over) = step(arena, action), oracle.step(action)
            assert (now.reward[0, 0], bool(now.terminated[0]), bool(now.truncated[0])) == (reward, over, False)
            if over:
                seen = oracle.reset()
                lives += not now.results
                results += [result["return"] for _, result in now.results]
            assert (now.inputs[0][0] == seen).all()
    assert results == raw.finished[: len(results)] and len(raw.finished) - len(results) in (0, 1)
    assert world.game == "pong" or (results and (lives > 0) == world.episodic_life)


def test_a_game_is_that_of_ale_pys_vector_environment() -> None:
    """Its pictures are ours up to the rounding of a shade; it sees zeros before the first, and clips no reward here."""
    env = AtariVectorEnv("pong", 1, noop_max=1, use_fire_reset=False, reward_clipping=False, num_threads=1)
    env.reset(seed=np.array([1]))
    with playing(replace(Atari(game="pong", sticky=0.0), reward_clip=None)) as arena:
        for action in generator("actions").integers(6, size=150).tolist():
            now, (seen, reward, over, _, _) = step(arena, action), env.step(np.array([action]))
            difference = now.inputs[0][0, -1].astype(int) - seen[0, -1]
            assert np.abs(difference).max() <= 1 and now.reward[0, 0] == reward[0] and now.terminated[0] == over[0]
    env.close()


# ------------------------------------------------------------------ an exact emulator


@pytest.mark.slow_cases(but=("pong",))
@pytest.mark.parametrize("game", ["pong", "qbert", "trondead"])
def test_a_console_goes_on_from_a_state_whatever_it_played(game: str) -> None:
    """qbert and trondead leave lines undrawn in their first frames."""
    start = start_of(game)
    fresh, used = Console(game), Console(game)
    actions = generator("actions", game).choice(start.minimal_actions, 120).tolist()
    for action in reversed(actions):
        used.act(action)

    def played(console: Console, actions: list[int]) -> list[Any]:
        return [(console.act(action), console.lives(), console.frame().tobytes()) for action in actions]

    for console in (fresh, used):
        console.load_state(start.state)
    first = played(fresh, actions[:60])
    assert played(used, actions[:60]) == first
    middle = fresh.save_state()
    rest = played(fresh, actions[60:])
    used.load_state(start.state)
    used.load_state(middle)
    assert played(used, actions[60:]) == rest
    assert used.save_state() == fresh.save_state()


def test_games_are_their_keys_beside_any_others() -> None:
    """The same game alone, beside others, and in an emulator that another arena used."""
    world, actions = replace(NO_FRAMESKIP, game="breakout"), generator("actions").integers(4, size=(60, 3))

    def first_slot(slots: int) -> list[bytes]:
        with playing(world, slots) as arena:
            return [step(arena, *row[:slots].tolist()).inputs[0][0].tobytes() for row in actions]

    assert first_slot(1) == first_slot(3) == first_slot(1)


@pytest.mark.slow_cases(but=("lives",))
@pytest.mark.parametrize(
    "world",
    [
        replace(NO_FRAMESKIP, game="breakout"),
        Atari(sticky=0.9, frame_skip=1, stack=2, size=40, noop_max=9, time_limit=99),
    ],
    ids=["lives", "every frame"],
)
def test_it_conforms_in_other_shapes(world: Atari) -> None:
    evorl.mdp.check(world, slots=2, decisions=60, lives=world.episodic_life)


@given(st.integers(1, 12), st.integers(1, 12))
def test_areas_are_those_of_the_definition(long: int, short: int) -> None:
    whole = areas(long, short)
    repeats = short // len(whole)
    for i in range(short):
        for j in range(long):
            low = max(Fraction(i, short), Fraction(j, long))
            overlap = max(Fraction(0), min(Fraction(i + 1, short), Fraction(j + 1, long)) - low)
            block_i, block_j = divmod(i, len(whole)), divmod(j, whole.shape[1])
            given_ = int(whole[block_i[1], block_j[1]]) if block_i[0] == block_j[0] else 0
            assert given_ == overlap * long * len(whole) and repeats * whole.shape[1] == long


@pytest.mark.parametrize("size", [36, 50, 83, 210])
def test_pictures_of_any_size_are_means_of_areas(size: int) -> None:
    frames = generator("frames", size).integers(0, 256, (3, 2, 210, 160)).astype(np.uint8)
    rows, columns = (np.kron(np.eye(size // len(area)), area) for area in (areas(210, size), areas(160, size)))
    total = rows[0].sum() * columns[0].sum()
    expected = np.rint(rows @ frames.max(1).astype(float) @ columns.T / total)
    assert (Shrink(210, 160, size)(frames) == expected).all()


def test_the_largest_sums_of_pixels_are_exact() -> None:
    for size in (36, 83, 84, 209, 210):
        white = np.full((1, 2, 250, 160), 255, np.uint8)
        assert (Shrink(250, 160, size)(white) == 255).all()
        tall, wide = (255 * areas(length, size)[0].sum() for length in (250, 160))
        assert tall < 2**16 and tall * wide / 255 < 2**24


# ------------------------------------------------------------------ keys of the config


def test_observations_and_actions_are_those_asked_for() -> None:
    with playing(Atari(game="breakout", size=40, stack=3)) as arena:
        assert arena.spec.inputs == (Input("observation", (3, 40, 40), "uint8", stacked=True),)
        assert arena.spec.action == Discrete(4)
        first = arena.recv().inputs[0][0]
        assert (first == first[0]).all() and first.any()
        before = first.copy()
        for _ in range(20):
            now = step(arena, 1).inputs[0][0]
            assert (now[:2] == before[1:]).all()
            before = now.copy()
        assert arena.render(0).shape == (210, 160, 3)
    with playing(Atari(game="breakout", full_action_space=True)) as arena:
        assert arena.spec.action == Discrete(18)


def test_no_ops_are_1_to_30_and_fire_is_pressed_where_there_is_a_button() -> None:
    def frames(world: Atari, slots: int) -> list[int]:
        with playing(world, slots) as arena:
            return [console.ale.getEpisodeFrameNumber() for console in arena._consoles]

    waited = frames(replace(NO_FRAMESKIP, game="freeway"), 8)  # it has no button
    assert 1 <= min(waited) < 8 and 23 < max(waited) <= 30
    assert frames(replace(NO_FRAMESKIP, game="breakout"), 4) == [n + 8 for n in waited[:4]]
    assert frames(Atari(game="breakout"), 2) == [0] * 2


def test_a_game_is_cut_at_its_limit_and_evaluated_whole() -> None:
    world = replace(NO_FRAMESKIP, game="breakout")
    assert (world.longest_episode, replace(world, frame_skip=1).longest_episode) == (27_000, 108_000)
    assert world.evaluation_world() == replace(world, episodic_life=False)
    with playing(world.evaluation_world(), 2) as arena:
        ended = list[int]()
        while not ended:
            now = step(arena, 1, 1)  # the bat does not move, so it loses five lives
            ended += [slot for slot, _ in now.results]
            assert bool(now.terminated.any()) == bool(now.results)
    with playing(world.capped(3).evaluation_world(), 2) as arena:
        step(arena, 0, 1), step(arena, 0, 1)
        last = arena.recv().inputs[0][:, 1:].copy()
        now = step(arena, 0, 1)
        assert now.truncated.all() and not now.terminated.any() and (now.final[0][:, :-1] == last).all()
        assert [(slot, result["length"]) for slot, result in now.results] == [(0, 3), (1, 3)]


def test_a_game_without_lives_left_has_not_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some games show none for a few frames before they are over."""
    with playing(replace(NO_FRAMESKIP, game="breakout")) as arena:
        for left, lost in ((4, True), (0, False)):
            with monkeypatch.context() as patch:
                patch.setattr(arena._consoles[0], "lives", lambda left=left: left)
                assert step(arena, 0).terminated.tolist() == [lost]


def test_a_stopped_slot_keeps_its_row() -> None:
    with playing(Atari(), 2) as arena:
        before = arena.recv().inputs[0].copy()
        arena.stop_slot(0)
        for _ in range(30):
            now = step(arena, 2, 2)
        assert now.cost == 1 and (now.inputs[0][0] == before[0]).all() and (now.inputs[0][1] != before[1]).any()
        arena.stop_slot(1)
        assert step(arena, 2, 2).cost == 0


def test_rewards_are_clipped_and_results_are_not() -> None:
    points = np.array([-20.0, -1, 0, 1, 3, 400])
    assert learner_reward("sign", points).tolist() == learner_reward("clamp", points).tolist() == [-1, -1, 0, 1, 1, 1]
    assert learner_reward(None, points).tolist() == points.tolist()
    soft = [5 * np.tanh(x / 5) * (0.3 if x < 0 else 1) for x in points]
    assert learner_reward("soft_asymmetric", points).tolist() == pytest.approx(soft)
    with playing(Atari(game="pong", sticky=0.0, reward_clip="soft_asymmetric")) as arena:
        rewards, results = list[float](), list[Any]()
        while not results:
            now = step(arena, 0)
            rewards.append(float(now.reward[0, 0]))
            results = now.results
    assert set(rewards) == {0.0, np.float32(-1.5 * np.tanh(0.2))}
    expected = {"return": -21.0, "length": len(rewards), "human_normalized": (-21 + 20.7) / (14.6 + 20.7)}
    assert results == [(0, expected)]


def test_a_game_without_known_scores_reports_none() -> None:
    with playing(Atari(game="pacman", time_limit=1)) as arena:
        assert {*step(arena, 0).results[0][1]} == {"return", "length"}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("mdp.game=brekout",), "mdp.game: ale-py has no game brekout; did you mean breakout?"),
        (("mdp.game=combat",), "mdp.game: ale-py has no game combat"),
        (("mdp.reward_clip=clip",), "mdp.reward_clip: expected one of .*; did you mean clamp"),
        (("mdp.kwargs.game=breakout",), "mdp.kwargs.game: unknown key of mdp=atari; it belongs to .*mdp=gymnasium"),
        (("mdp.size=20",), "mdp.size: .*36"),
    ],
)
def test_a_wrong_word_is_named(words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert go("mdp=atari", *words) == 2
    (told,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("evorl: ")]
    assert re.search(line, told), told


def test_without_ale_py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.atari.world.find_spec", lambda name: None)
    with pytest.raises(BadRequest, match=r"pong needs more than is installed: .* -e '\.\[atari\]'") as caught:
        Atari().ready()
    assert caught.value.key == "game" and "ale_py" in sys.modules


# ------------------------------------------------------------------ runs


@pytest.mark.slow  # the world conforms above, and runs resume in tests/jobs
def test_a_run_learns_from_images_and_resumes_to_the_bit(tmp_path: Path) -> None:
    asked = (*QUICK, "mdp=atari_noframeskip", "mdp.game=breakout", *SMALL, "checkpoint.every=0")
    words = {word.partition("=")[0]: word for word in asked}.values()
    assert go(*words, "budget.steps=48", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    assert go(*words, "budget.steps=16", f"hydra.run.dir={tmp_path / 'halves'}") == 0
    assert go(f"resume={tmp_path / 'halves'}", "budget.steps=48") == 0
    stopped = [16]
    assert fingerprint(tmp_path / "halves", aside=stopped) == fingerprint(tmp_path / "whole", aside=stopped)


@pytest.mark.slow
def test_the_number_of_workers_changes_no_bit(tmp_path: Path) -> None:
    asked = (*QUICK, "mdp=atari", *SMALL, "rl.members=2", "rl.net.shared=true", "rl.net.hidden=[]", "budget.steps=96")
    experiment = experiment_of(*{word.partition("=")[0]: word for word in asked}.values())
    train_in(tmp_path / "local", experiment)
    train_in(tmp_path / "processes", replace(experiment, cluster=Processes(workers=2)))
    assert fingerprint(tmp_path / "processes") == fingerprint(tmp_path / "local")
