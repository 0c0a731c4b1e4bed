"""Pong against a slow oracle written from its definition, and what the arena promises."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evorl.mdp.core import Array
from evorl.mdp.pong.match import Match, result
from evorl.mdp.pong.rules import DOWN, SIZE, STAY, TOP, UP, Behaviour, Games, Rules, advance, rule_moves
from evorl.mdp.pong.world import SPEC, Pong, PongArena
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

FAST = Pong(rounds=3, round_steps=150)


@dataclass
class Oracle:
    """One game, one side at a time, in plain integers and floats, as the definition tells it."""

    rules: Rules
    key: int

    def __post_init__(self) -> None:
        self.bat = [34 + 80 - self.rules.bat_height // 2] * 2
        self.points = [0, 0]
        self.stays, self.shifts = [0, 0], [0, 0]
        self.manner = [0.0, 0.0]  # the last step's rewards for behaviour
        self.rounds = self.total = 0
        self.seen: list[tuple[int, int]] = []
        self.serve()

    def draw(self, counter: int) -> float:
        return float(seeds.uniform(np.uint64([self.key]), counter)[0])

    def serve(self) -> None:
        low, high = self.rules.serve
        first = 3 * self.rounds + 1
        self.x, self.y, self.steps = 78, 112, 0
        self.vx = (-1.0 if self.draw(first + 1) < 0.5 else 1.0) * self.rules.ball_speed
        size = low + (high - low) * self.draw(first)
        self.vy = (-1.0 if self.draw(first + 2) < 0.5 else 1.0) * self.rules.ball_speed * size

    def step(self, actions: tuple[int, int]) -> tuple[int, int]:
        self.steps += 1
        self.total += 1
        move = [(action - 1) * self.rules.bat_speed for action in actions]
        for side in (0, 1):
            before = self.bat[side]
            self.bat[side] = min(max(self.bat[side] + move[side], 34), 194 - self.rules.bat_height)
            stays, shifts = actions[side] == STAY, self.bat[side] != before
            self.stays[side] += stays
            self.shifts[side] += shifts
            self.manner[side] = self.rules.reward.lazy * (0 if stays else -1) + self.rules.reward.busy * shifts
        self.move_ball(move)
        if self.x < 0:
            return self.end((-1, 1))
        if self.x + 4 > 160:
            return self.end((1, -1))
        if self.steps > self.rules.round_steps:
            return self.end((0, 0))
        return (0, 0)

    def move_ball(self, move: list[int]) -> None:
        x, y = self.x, self.y
        cross_left = (21 - x) / self.vx * self.vy + y
        cross_right = (139 - (x + 4)) / self.vx * self.vy + y
        self.x = math.trunc(x + self.vx)
        self.y = math.trunc(y + self.vy)
        tall = self.rules.bat_height
        if self.vy < 0 and self.y <= 34:
            self.vy, self.y = -self.vy, 34
        elif self.vy > 0 and self.y + 4 >= 194:
            self.vy, self.y = -self.vy, 190
        elif self.vx < 0 and self.x <= 21 < x and self.bat[0] - 4 <= cross_left <= self.bat[0] + tall:
            self.vx, self.vy = -self.vx, self.vy + self.rules.spin * move[0]
            self.x, self.y = 21, math.trunc(cross_left)
        elif self.vx > 0 and x + 4 < 139 <= self.x + 4 and self.bat[1] - 4 <= cross_right <= self.bat[1] + tall:
            self.vx, self.vy = -self.vx, self.vy + self.rules.spin * move[1]
            self.x, self.y = 135, math.trunc(cross_right)

    def end(self, reward: tuple[int, int]) -> tuple[int, int]:
        for side in (0, 1):
            self.points[side] += reward[side] > 0
        self.rounds += 1
        self.serve()
        return reward

    def results(self, side: int) -> dict[str, float]:
        shares = {"lazy": self.stays[side] / self.total, "busy": self.shifts[side] / self.total}
        return result(self.points[side] - self.points[1 - side], self.rules.rounds) | shares

    def rule(self, side: int) -> int:
        return 2 if self.bat[side] + self.rules.bat_height / 2 < self.y + 2 else 0

    def update_view(self, side: int) -> list[float]:
        """Called once for each step and side; keeps the positions itself."""
        if side == 0:
            self.seen.append((self.x, self.y))
        balls = [(0.5, 0.5)] * 3 + [(abs(x - 160 * side) / 160, (y - 34) / 160) for x, y in self.seen[-4:]]
        heights = [(self.bat[side] - 34) / 160, (self.bat[1 - side] - 34) / 160]
        return heights + [number for ball in balls[-4:] for number in ball]

    def numbers(self) -> list[float]:
        return [*self.bat, self.y, self.x, self.vx, self.vy, self.rounds, self.total, *self.points]


def numbers(games: Games, game: int) -> list[float]:
    rest = [games.x, games.vx, games.vy, games.round, games.time, games.score[0], games.score[1]]
    return [*games.y[:, game].tolist(), *[float(array[game]) for array in rest]]


def keys(count: int, start: int = 0) -> Array:
    return np.arange(start, start + count, dtype=np.uint64) * np.uint64(0x1234567)


def sticky(rng: np.random.Generator, shape: tuple[int, ...], before: Array | None) -> Array:
    """Actions that mostly repeat themselves, so that bats travel far and reach the edges."""
    fresh = rng.integers(0, 3, shape)
    return fresh if before is None else np.where(rng.random(shape) < 0.15, fresh, before)


def test_field_is_the_defined_one() -> None:
    games = Games(Rules(), keys(1))
    assert (games.x[0], *games.y[:, 0]) == (78, 107, 107, 112)
    assert abs(games.vx[0]) == 4 and 1.2 <= abs(games.vy[0]) <= 4


@pytest.mark.slow_cases("field-wide")
@pytest.mark.parametrize(
    "rules",
    [
        Rules(rounds=10_000),
        Rules(rounds=10_000, round_steps=60),
        Rules(rounds=10_000, bat_speed=7, bat_height=30, ball_speed=9, spin=1.9, serve=(0.0, 3.0)),
        Rules(rounds=10_000, bat_speed=2, bat_height=160, ball_speed=1, serve=(0.0, 0.5)),
        Rules(rounds=10_000, bat_height=120, ball_speed=117, serve=(0.0, 0.3)),
    ],
    ids=["default", "ties", "wild", "walls", "field-wide"],
)
def test_every_state_equals_the_oracles(rules: Rules) -> None:
    count, steps = 12, 1200
    games = Games(rules, keys(count))
    oracles = [Oracle(rules, int(key)) for key in keys(count)]
    rng = np.random.default_rng(0)
    actions, rule, bounces = None, np.zeros((2, count)), 0
    for _ in range(steps):
        actions = sticky(rng, (2, count), actions)
        rule_moves(rules, games, rule)  # half of the games are played well, so that rallies last
        actions[:, ::2] = (rule[:, ::2] / rules.bat_speed + 1).astype(int)
        vx = games.vx.copy()
        ended, point = advance(rules, games, (actions - 1.0) * rules.bat_speed)
        won = np.zeros(count)
        won[ended] = point
        for game, oracle in enumerate(oracles):
            assert oracle.step((actions[0, game], actions[1, game])) == (won[game], -won[game])
            assert oracle.numbers() == numbers(games, game)
        bounces += int((np.delete(games.vx * vx, ended) < 0).sum())
    assert bounces > 20 and games.round.sum() >= count


def test_the_rule_player_is_the_oracles() -> None:
    rules = Rules()
    games = Games(rules, keys(20))
    rng = np.random.default_rng(1)
    moves, seen = np.zeros((2, 20)), set()
    for _ in range(300):
        rule_moves(rules, games, moves)
        for game in range(20):
            oracle = Oracle(rules, 0)
            oracle.bat, oracle.y = games.bats[:, game].tolist(), games.ball[game]
            assert moves[:, game].tolist() == [(oracle.rule(side) - 1) * 4 for side in (0, 1)]
        seen |= set(moves.ravel().tolist())
        advance(rules, games, rng.integers(-1, 2, (2, 20)) * 4.0)
    assert seen == {-4.0, 4.0}  # it never stops


@pytest.mark.slow_cases(but=("self-points", "self-behaviour", "rule-points"))
@pytest.mark.parametrize("weights", [Behaviour(), Behaviour(lazy=0.001, busy=-0.25)], ids=["points", "behaviour"])
@pytest.mark.parametrize("opponent", ["rule", "random", "self"])
def test_arena_equals_oracle_games(opponent: Any, weights: Behaviour) -> None:
    """Observations, rewards, ends, results, sides, opponents and the keys of the following episodes."""
    world, slots, episodes = replace(FAST, opponent=opponent, bat_height=30, reward=weights), 6, Episodes(3)
    arena = world.arena(slots, episodes)
    share = 2 if opponent == "self" else 1
    number = [0] * (slots // share)
    oracles = [Oracle(world, int(episodes(game, 0))) for game in range(len(number))]
    rng, ended = np.random.default_rng(2), 0
    rewards, results, over = np.zeros((slots, 1)), [], np.zeros(slots, bool)
    actions = None
    for _ in range(700):
        now = arena.recv()
        assert now.slots.tolist() == list(range(slots)) and not now.truncated.any()
        np.testing.assert_array_equal(now.reward, np.float32(rewards))
        np.testing.assert_array_equal(now.terminated, over)
        assert now.results == results
        sides = [slot % 2 if share == 2 else int(oracles[slot].draw(0) >= 0.5) for slot in range(slots)]
        looks = [[oracle.update_view(side) for side in (0, 1)] for oracle in oracles]
        expected = [looks[slot // share][sides[slot]] for slot in range(slots)]
        np.testing.assert_array_equal(now.inputs[0], np.float32(expected))
        actions = sticky(rng, (slots, 1), actions)
        rewards, results, over = np.zeros((slots, 1)), [], np.zeros(slots, bool)
        for game, oracle in enumerate(oracles):
            both = [oracle.rule(side) for side in (0, 1)]
            if opponent == "random":
                both = [int(3 * oracle.draw(2**32 + 2 * oracle.total + side)) for side in (0, 1)]
            mine = range(game * share, (game + 1) * share)
            for slot in mine:
                both[sides[slot]] = int(actions[slot, 0])
            reward = oracle.step((both[0], both[1]))
            for slot in mine:
                rewards[slot] = reward[sides[slot]] + oracle.manner[sides[slot]]
                if oracle.rounds == world.rounds:
                    results.append((slot, oracle.results(sides[slot])))
                    over[slot] = True
            if oracle.rounds == world.rounds:
                number[game] += 1
                oracles[game] = Oracle(world, int(episodes(game, number[game])))
                ended += 1
        arena.send(now.slots, actions)
        assert arena.recv().cost == len(oracles)
    assert ended > 5


@given(
    key=st.integers(0, 2**64 - 1),
    seed=st.integers(0, 2**32),
    speeds=st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 160)),
    spin=st.floats(0, 5),
)
@settings(max_examples=25)
def test_everything_stays_in_the_field(key: int, seed: int, speeds: tuple[int, int, int], spin: float) -> None:
    bat_speed, ball_speed, bat_height = speeds
    rules = Rules(rounds=100, bat_speed=bat_speed, ball_speed=ball_speed, bat_height=bat_height, spin=spin)
    match = Match(rules, "self", np.uint64([key]), np.zeros(2, int), np.arange(2))
    games, rng, actions = match.games, np.random.default_rng(seed), None
    score = 0
    for _ in range(100):
        actions = sticky(rng, (2,), actions)
        _, point = match.advance(actions)
        match.players.update_view(games)
        score += point.sum()
        assert 0 <= games.x[0] <= SIZE - 4 and TOP <= games.ball[0] <= TOP + SIZE - 4
        assert (games.bats >= TOP).all() and (games.bats <= TOP + SIZE - bat_height).all()
        assert (games.y == np.trunc(games.y)).all() and games.x[0] == int(games.x[0])
        assert games.score[0, 0] - games.score[1, 0] == score and games.score.sum() <= games.round[0]
        assert (match.players.view >= 0).all() and (match.players.view <= 1).all()


@given(key=st.integers(0, 2**64 - 1), seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_the_right_side_sees_a_mirrored_game(key: int, seed: int) -> None:
    """Mirroring the field and swapping the players swaps what they see, but for the ball's other edge."""
    rules, both = Rules(rounds=50), (np.zeros(2, int), np.arange(2))
    match, mirror = Match(rules, "self", np.uint64([key]), *both), Match(rules, "self", np.uint64([key]), *both)
    for one in (mirror.games.serves[0], mirror.games.vx):
        one *= -1
    rng, actions = np.random.default_rng(seed), None
    edge = np.float32([0, 0] + [4 / SIZE, 0] * 4)  # both measure from the ball's left corner
    for step in range(120):
        actions = sticky(rng, (2,), actions)
        match.advance(actions)
        mirror.advance(actions[::-1])
        for one in (match, mirror):
            one.players.update_view(one.games)
        assert mirror.games.x[0] == SIZE - 4 - match.games.x[0]
        assert mirror.games.score[::-1].tolist() == match.games.score.tolist()
        if step >= 3:  # before that the history holds its initial values
            np.testing.assert_allclose(match.players.view[1], mirror.players.view[0] + edge, atol=1e-6)


def test_a_long_round_is_a_tie() -> None:
    rules = Rules(rounds=2, serve=(0.0, 0.0))  # to and fro along a line between bats that stand still
    games = Games(rules, keys(1))
    still = np.zeros((2, 1))
    for _ in range(2):
        for _ in range(1000):
            assert not len(advance(rules, games, still)[0])
        ended, point = advance(rules, games, still)  # step 1001
        assert ended.tolist() == [0] and point.tolist() == [0]
    assert games.round[0] == 2 and games.score.sum() == 0


def test_bats_stay_where_they_are_between_rounds() -> None:
    rules = Rules(round_steps=10)
    games = Games(rules, keys(1))
    for _ in range(11):
        ended, _ = advance(rules, games, np.float64([[-4], [4]]))
    assert len(ended) and games.bats[:, 0].tolist() == [107 - 44, 107 + 44]
    assert (games.x[0], games.ball[0], games.round[0], games.time[0]) == (78, 112, 1, 11)


@pytest.mark.parametrize(
    ("lead", "win", "fitness"), [(20, 1.0, 1.0), (0, 0.5, 0.5), (-20, 0.0, 0.0), (-1, 0.0, 19 / 40), (10, 1.0, 0.75)]
)
def test_results(lead: int, win: float, fitness: float) -> None:
    assert result(lead, 20) == {"score": lead, "win": win, "fitness": fitness}


def test_lazy_and_busy_are_shares_of_steps() -> None:
    """What a bat does against the edge moves nothing."""
    arena, steps = Pong(rounds=5, side="left").arena(1, Episodes(0)), 0
    while not arena.recv().results:
        arena.send(np.arange(1), np.array([[STAY if steps < 10 else UP]]))
        steps += 1
    ((_, results),) = arena.recv().results
    assert steps > 40 and results["lazy"] == 10 / steps and results["busy"] == 19 / steps  # from 107 to 34 by 4


def test_behaviour_adds_to_the_points_alone() -> None:
    """The same course; each reward is greater by its weights, results say nothing of them."""
    plain = replace(FAST, opponent="self").arena(4, Episodes(1))
    shaped = replace(FAST, opponent="self", reward=Behaviour(lazy=0.5, busy=0.25)).arena(4, Episodes(1))
    rng, seen, actions = np.random.default_rng(0), set(), None
    for _ in range(400):
        actions = sticky(rng, (4, 1), actions)
        bats = plain.recv().inputs[0][:, 0].copy()
        for arena in (plain, shaped):
            arena.send(np.arange(4), actions)
        one, other = plain.recv(), shaped.recv()
        np.testing.assert_array_equal(one.inputs[0], other.inputs[0])
        assert one.results == other.results
        extra = other.reward[:, 0] - one.reward[:, 0]
        seen |= set(extra.tolist())
        stays, going = actions[:, 0] == STAY, ~one.terminated
        moved = one.inputs[0][:, 0] != bats
        np.testing.assert_array_equal(extra[going], (0.25 * moved - 0.5 * ~stays)[going])
    assert seen == {0.0, -0.25, -0.5}


def test_bats_spin_the_ball_even_where_the_edge_stops_them() -> None:
    rules = Rules()
    games = Games(rules, keys(1))
    games.x[:], games.ball[:], games.vx[:], games.vy[:] = 24, 40, -4, 1.0
    games.bats[:] = TOP
    advance(rules, games, np.float64([[-4], [0]]))  # up, but already at the upper edge
    assert games.bats[0, 0] == TOP and games.vx[0] == 4 and games.x[0] == 21
    assert games.vy[0] == 1.0 + 0.7 * -4 and games.ball[0] == 40  # crossing at 40.75


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("ball", "bat", "hit"),
    [(100, 104, True), (100, 105, False), (100, 85, True), (100, 84, False), (34, 34, True), (190, 179, True)],
    ids=["its top", "above it", "its bottom", "below it", "upper wall", "lower wall"],
)
def test_a_bat_hits_with_its_very_edge(side: int, ball: int, bat: int, hit: bool) -> None:
    """Also a ball that runs along a wall."""
    games = Games(Rules(), keys(1))
    games.x[:], games.ball[:], games.vx[:], games.vy[:] = (23, 133)[side], ball, (-4, 4)[side], 0.0
    games.bats[:] = bat
    advance(Rules(), games, np.zeros((2, 1)))
    assert games.x[0] == ((21, 135) if hit else (19, 137))[side] and games.ball[0] == ball
    assert games.vx[0] == (-4, 4)[side] * (-1 if hit else 1)


def test_actions_move_the_own_bat() -> None:
    for side, own in (("left", 0), ("right", 1)):
        for action, moved in ((UP, -4), (STAY, 0), (DOWN, 4)):
            arena = PongArena(Pong(side=side), 3, Episodes(0))
            before = arena.recv().inputs[0][:, 0].copy()
            arena.send(np.arange(3), np.full((3, 1), action))
            np.testing.assert_allclose(arena.recv().inputs[0][:, 0] - before, moved / 160, atol=1e-6)
            assert (arena._match.games.bats[own] == 107 + moved).all()


def run(arena: Any, steps: int, seed: int = 0) -> str:
    """A digest of everything an arena hands out under fixed actions."""
    digest, rng = hashlib.blake2b(), np.random.default_rng(seed)
    for _ in range(steps):
        now = arena.recv()
        for array in (now.inputs[0], now.reward, now.terminated):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(repr(now.results).encode())
        arena.send(now.slots, rng.integers(0, 3, (len(now.slots), 1)))
    return digest.hexdigest()


@pytest.mark.parametrize("opponent", ["rule", "random", "self"])
def test_state_is_exact(opponent: Any) -> None:
    world = replace(FAST, opponent=opponent, reward=Behaviour(lazy=0.1, busy=0.2))
    arena, other = world.arena(8, Episodes(5)), world.arena(8, Episodes(5))
    run(arena, 333)
    run(other, 50, seed=9)
    shown = arena.recv().inputs[0].copy()
    state = arena.state_dict()
    answer = np.ones((8, 1), np.int64)
    arena.send(np.arange(8), answer)
    expected = run(arena, 400, seed=1)
    other.load_state_dict(state)  # the arena that went on has not touched it
    now = other.recv()
    assert now.slots.tolist() == list(range(8)) and now.cost == 0
    assert not (now.reward.any() or now.terminated.any() or now.results)
    np.testing.assert_array_equal(now.inputs[0], shown)
    other.send(now.slots, answer)
    assert run(other, 400, seed=1) == expected


def test_a_state_of_other_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="holds 4 slots"):
        FAST.arena(6, Episodes(0)).load_state_dict(FAST.arena(4, Episodes(0)).state_dict())
    with pytest.raises(ValueError, match="holds 1 slots"):
        FAST.arena(6, Episodes(0)).load_state_dict(FAST.arena(1, Episodes(0)).state_dict())


def test_a_slots_episode_does_not_depend_on_the_other_slots() -> None:
    few, many = FAST.arena(3, Episodes(7)), FAST.arena(40, Episodes(7))
    rng = np.random.default_rng(0)
    for _ in range(600):
        actions = rng.integers(0, 3, (40, 1))
        few.send(np.arange(3), actions[:3])
        many.send(np.arange(40), actions)
        for one, all_ in (
            (few.recv().inputs[0], many.recv().inputs[0][:3]),
            (few.recv().reward, many.recv().reward[:3]),
        ):
            np.testing.assert_array_equal(one, all_)


def fresh() -> Any:
    return FAST.arena(8, Episodes(5))


def test_same_key_same_game_in_a_fresh_process(elsewhere: Callable[[str], str]) -> None:
    assert elsewhere("run(fresh(), 400)") == run(fresh(), 400)


def test_arena_reuses_its_arrays() -> None:
    arena = FAST.arena(4, Episodes(0))
    first = arena.recv()
    view, reward = first.inputs[0], first.reward
    arena.send(first.slots, np.ones((4, 1), int))
    assert arena.recv() is first and first.inputs[0] is view and first.reward is reward
    assert view.flags.c_contiguous and view.dtype == np.float32


def test_every_slot_must_be_answered() -> None:
    with pytest.raises(ValueError, match="all 4 slots"):
        FAST.arena(4, Episodes(0)).send(np.arange(3), np.zeros((3, 1), int))


def test_sides_are_random_by_episode() -> None:
    sides = Pong().learner_sides(Episodes(0)(np.arange(1000), 0))
    assert 450 < sides.sum() < 550
    assert (Pong(side="left").learner_sides(keys(5)) == 0).all() and (
        Pong(side="right").learner_sides(keys(5)) == 1
    ).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"opponent": "self", "side": "left"}, "side: left contradicts opponent=self"),
        ({"serve": (2.0, 1.0)}, "serve: the range"),
        ({"delay_ms": (3.0, 1.0)}, "delay_ms: expected"),
    ],
)
def test_impossible_configs(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pong(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"opponent": "good"}, {"rounds": 0}, {"bat_height": 161}, {"bat_speed": 2.5}, {"spin": -1}, {"serve": [0.1]}],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Pong)


def test_self_play_needs_an_even_number_of_slots() -> None:
    with pytest.raises(BadRequest, match="even number of slots") as error:
        Pong(opponent="self").arena(7, Episodes(0))
    assert error.value.key == "rl.slots"


def test_pictures() -> None:
    arena = Pong(opponent="self").arena(4, Episodes(0))
    first, same, second = arena.render(0), arena.render(1), arena.render(2)
    assert first.shape == (210, 160, 3) and first.dtype == np.uint8
    assert (first == same).all() and (first == second).all()  # everything stands where it starts
    white = first[112:116, 78:82]
    assert (white == white[0, 0]).all() and (first == white[0, 0]).all(-1).sum() == 16
    arena.send(np.arange(4), np.int64([[UP], [UP], [DOWN], [DOWN]]))
    assert not (arena.render(0) == arena.render(2)).all()
    teal = arena.render(0)[34:, 16:21]
    assert (teal[69:84] == teal[69, 0]).all() and not (teal[68] == teal[69, 0]).any()  # the left bat, 4 px higher


def test_the_picture_shows_the_score() -> None:
    arena = PongArena(Pong(), 1, Episodes(0))
    before = arena.render()
    arena._match.games.score[:, 0] = 1, 12
    after = arena.render()
    assert (before[34:] == after[34:]).all()
    assert not (before[:34, :80] == after[:34, :80]).all() and not (before[:34, 80:] == after[:34, 80:]).all()


def test_spec() -> None:
    assert Pong().spec == SPEC and SPEC.players == 2 and SPEC.rewards == ("score",)
