"""Slime volleyball against a slow oracle written from its rules, published numbers, and what the arena promises."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from evorl.mdp.conformance import check
from evorl.mdp.volley import Volley, baseline
from evorl.mdp.volley.arena import VolleyArena
from evorl.mdp.volley.rules import Games, Rules, Slime, advance, begin, observe
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

TABLE = ((0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 0))
"""Forward, back and jump of each action."""
DT, NUDGE = 1 / 30, 0.1


@dataclass
class SlowDisc:
    x: float
    y: float
    vx: float
    vy: float
    radius: float


@dataclass
class SlowGame:
    """One game, one body at a time, as the rules tell it."""

    key: int
    serves: int = 0
    lives: list[int] = field(default_factory=lambda: [5, 5])

    def __post_init__(self) -> None:
        self.slimes = [SlowDisc(-12, 1.5, 0, 0, 1.5), SlowDisc(12, 1.5, 0, 0, 1.5)]
        self.serve()

    def serve(self) -> None:
        first, second = (float(seeds.uniform(np.array([self.key], np.uint64), 2 * self.serves + n)[0]) for n in (1, 2))
        self.ball = SlowDisc(0, 12, -20 + 40 * first, 10 + 15 * second, 0.5)
        self.before, self.delay = 0.0, 30
        self.serves += 1

    def step(self, actions: tuple[int, int]) -> int:
        for side, action in enumerate(actions):
            self.run(self.slimes[side], 2 * side - 1, *TABLE[action])
        if self.delay:
            self.delay -= 1
        else:
            self.fall()
        for other in (*self.slimes, SlowDisc(0, 3.5, 0, 0, 0.5)):
            self.bounce(other)
        loser = self.edges()
        if loser is None:
            return 0
        self.lives[loser] -= 1
        self.serve()
        return 2 * loser - 1

    def run(self, slime: SlowDisc, direction: int, forward: int, back: int, jump: int) -> None:
        slime.vy -= 29.4 * DT
        if slime.y <= 1.5 + NUDGE * DT:
            slime.vy = 13.5 if jump else 0.0
        slime.vx = 17.5 * (back - forward) * direction
        slime.x += slime.vx * DT
        slime.y += slime.vy * DT
        if slime.y <= 1.5:
            slime.y, slime.vy = 1.5, 0.0
        own = slime.x * direction
        if own <= 2 or own >= 22.5:
            slime.vx, slime.x = 0.0, direction * min(max(own, 2.0), 22.5)

    def fall(self) -> None:
        ball = self.ball
        ball.vy -= 29.4 * DT
        speed = math.hypot(ball.vx, ball.vy)
        if speed > 22.5:
            ball.vx, ball.vy = ball.vx / speed * 22.5, ball.vy / speed * 22.5
        self.before = ball.x
        ball.x += ball.vx * DT
        ball.y += ball.vy * DT

    def bounce(self, other: SlowDisc) -> None:
        ball = self.ball
        gap = (ball.x - other.x, ball.y - other.y)
        far = math.hypot(*gap)
        if far >= ball.radius + other.radius:
            return
        nx, ny = gap[0] / far, gap[1] / far
        while math.hypot(ball.x - other.x, ball.y - other.y) < ball.radius + other.radius:
            ball.x, ball.y = ball.x + NUDGE * nx, ball.y + NUDGE * ny
        ux, uy = ball.vx - other.vx, ball.vy - other.vy
        along = ux * nx + uy * ny
        ball.vx, ball.vy = ux - 2 * along * nx + other.vx, uy - 2 * along * ny + other.vy

    def edges(self) -> int | None:
        """The side on whose ground the ball is, if it is."""
        ball, nudge = self.ball, NUDGE * DT
        if ball.x <= -23.5:
            ball.vx, ball.x = -ball.vx, nudge - 23.5
        if ball.x >= 23.5:
            ball.vx, ball.x = -ball.vx, 23.5 - nudge
        if ball.y <= 2:
            return 0 if ball.x <= 0 else 1
        if ball.y >= 47.5:
            ball.vy, ball.y = -ball.vy, 47.5 - nudge
        if ball.x <= 1 < self.before and ball.y <= 3.5:
            ball.vx, ball.x = -ball.vx, 1 + nudge
        if ball.x >= -1 > self.before and ball.y <= 3.5:
            ball.vx, ball.x = -ball.vx, -1 - nudge
        return None


def new_games(count: int, first: int = 0) -> Games:
    games = Games(count)
    begin(Rules(), games, np.arange(count), np.arange(first, first + count).astype(np.uint64))
    return games


def test_a_game_is_that_of_the_oracle() -> None:
    """400 steps of 30 games, in which the baseline plays one side and both move at random at times."""
    count, draw = 30, np.random.default_rng(0)
    games, slow = new_games(count), [SlowGame(key) for key in range(count)]
    outputs, points = np.zeros((count, 7)), 0
    for step in range(400):
        actions = draw.integers(0, 6, (2, count))
        played, outputs = baseline.step(observe(games)[:, 1], outputs)
        actions[1] = np.where(draw.random(count) < 0.8, played, actions[1])
        won = advance(Rules(), games, actions)
        for game, it in enumerate(slow):
            point = it.step((int(actions[0, game]), int(actions[1, game])))
            assert point == won[game], (step, game)
            left, right = it.slimes
            assert np.allclose(games.x[:, game], [left.x, right.x]) and np.allclose(games.y[:, game], [left.y, right.y])
            assert np.allclose(games.ball[:, game], [it.ball.x, it.ball.y], atol=1e-6), (step, game)
            assert np.allclose(games.velocity[:, game], [it.ball.vx, it.ball.vy], atol=1e-6)
            assert games.lives[:, game].tolist() == it.lives
            points += abs(point)
    assert points > 30


def test_unlike_sides_run_and_jump_by_their_own_factors() -> None:
    rules = Rules(left=Slime(speed=0.5), right=Slime(jump=0.8))
    games = new_games(1)
    before, highest = games.x[:, 0].copy(), np.zeros(2)
    for step in range(30):
        advance(rules, games, np.full((2, 1), 2 if step < 6 else 3))  # forward and jump, then jump
        highest = np.maximum(highest, games.y[:, 0])
    assert np.allclose(games.x[:, 0] - before, [6 * 17.5 * DT * 0.5, -6 * 17.5 * DT])
    slow = [SlowDisc(0, 1.5, 0, 0, 1.5) for _ in range(2)]
    tops = []
    for disc, jump in zip(slow, (13.5, 13.5 * 0.8), strict=True):
        heights = []
        disc.vy = jump
        for _ in range(30):
            disc.y += disc.vy * DT
            disc.vy -= 29.4 * DT
            heights.append(disc.y)
        tops.append(max(heights))
    assert np.allclose(highest, tops)


def test_a_side_may_see_which_it_is() -> None:
    plain, seeing = (Volley(opponent="self", see_side=see).arena(4, Episodes(0)) for see in (False, True))
    for step in range(40):
        a, b = plain.recv().inputs[0], seeing.recv().inputs[0]
        assert b[:, :-1].tobytes() == a.tobytes() and b[:, -1].tolist() == [-1, 1, -1, 1]
        actions = np.random.default_rng(step).integers(0, 6, (4, 1))
        plain.send(np.arange(4), actions)
        seeing.send(np.arange(4), actions)
    arena = Volley(see_side=True).arena(6, Episodes(0))
    assert isinstance(arena, VolleyArena)
    assert (arena.recv().inputs[0][:, -1] == 2 * arena.team - 1).all() and {*arena.team} == {0, 1}
    assert Volley(see_side=True).feature_names["game"][-1] == "side"


def test_published_numbers() -> None:
    """A serve of (10, 15) that nobody plays, and a jump that is held, in SlimeVolleyGym itself."""
    games = new_games(1)
    games.velocity[:, 0] = 10, 15
    heights = []
    for step in range(1, 76):
        won = advance(Rules(), games, np.array([[0], [3]]))
        heights.append(games.y[1, 0])
        if step == 31:
            assert np.allclose(games.ball[:, 0], [10 / 30, 12 + 14.02 / 30])
            assert np.allclose(games.velocity[:, 0], [10, 14.02])
        if step < 75:
            assert won[0] == 0
    assert max(heights) == pytest.approx(4.8273, abs=1e-4)


def test_an_idle_side_loses_the_point_at_the_published_step() -> None:
    games = new_games(1)
    games.velocity[:, 0] = 10, 15
    won = [int(advance(Rules(), games, np.zeros((2, 1), np.int64))[0]) for _ in range(75)]
    assert won == [0] * 74 + [1] and games.lives[:, 0].tolist() == [5, 4]


@pytest.mark.slow_cases(but=("keys0", "keys3"))
@pytest.mark.parametrize(
    "keys",
    [{}, {"opponent": "self"}, {"opponent": "random", "side": "left"}, {"opponent": "self", "see_side": True}],
)
def test_it_follows_the_interface(keys: dict[str, Any]) -> None:
    world = Volley(lives=2, time_limit=150, **keys)
    check(world, slots=2 * world.sides, decisions=160)


@pytest.mark.slow
def test_the_baseline_is_even_with_itself_and_beats_random_play() -> None:
    """As published: random play has a score of -4.9 of 5 against it; of its games with itself, most are not lost."""
    scores = {name: played(name) for name in ("random", "rule")}
    assert scores["random"] > 4.5
    assert abs(scores["rule"]) < 0.5


def played(opponent: Any, games: int = 40) -> float:
    """The baseline's mean score as the learner's side, by the action that the world's rule player takes."""
    arena = Volley(opponent=opponent).arena(games, Episodes(0))
    assert isinstance(arena, VolleyArena)
    scores: list[float] = []
    outputs = np.zeros((games, 7))
    while len(scores) < games:
        now = arena.recv()
        outputs[now.terminated | now.truncated] = 0
        scores += [results["score"] for _, results in now.results]
        actions, outputs = baseline.step(observe(arena.games)[np.arange(games), arena.team], outputs)
        arena.send(now.slots, actions[:, None])
    return float(np.mean(scores))


def test_a_side_is_left_to_the_baseline_by_a_negative_action() -> None:
    """Game by game as if the world played it."""
    one, both = Volley(side="left").arena(4, Episodes(2)), Volley(opponent="self").arena(8, Episodes(2))
    for step in range(300):
        a, b = one.recv(), both.recv()
        assert a.inputs[0].tobytes() == b.inputs[0][::2].tobytes()
        actions = np.random.default_rng(step).integers(0, 6, (4, 1))
        pairs = np.full((8, 1), -1)
        pairs[::2] = actions
        one.send(a.slots, actions)
        both.send(b.slots, pairs)


def test_both_sides_see_a_mirrored_game() -> None:
    arena = Volley(opponent="self").arena(2, Episodes(0))
    assert isinstance(arena, VolleyArena)
    arena.games.velocity[0] = arena.games.ball[0] = 0
    left, right = observe(arena.games)[0]
    assert np.allclose(left, right) and left[0] == 1.2 and left[8] == 1.2


def test_a_game_that_lasts_is_truncated_with_its_last_state() -> None:
    arena = Volley(time_limit=20).arena(2, Episodes(0))
    for _ in range(20):
        arena.send(arena.recv().slots, np.zeros((2, 1), np.int64))
    now = arena.recv()
    assert now.truncated.all() and not now.terminated.any() and len(now.results) == 2
    assert not np.allclose(now.final[0], now.inputs[0]) or not now.final[0].any()


def test_pictures_show_slimes_ball_and_lives() -> None:
    image = Volley().arena(1, Episodes(0)).render()
    assert image is not None and image.shape == (240, 480, 3)
    for colour in ((240, 122, 58), (74, 150, 236), (250, 204, 62)):
        assert (np.abs(image.astype(int) - colour).sum(2) < 12).sum() > 40


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadRequest, match="contradicts opponent=self"):
        Volley(opponent="self", side="left")
    with pytest.raises(BadRequest, match="even number of slots"):
        Volley(opponent="self").arena(3, Episodes(0))
