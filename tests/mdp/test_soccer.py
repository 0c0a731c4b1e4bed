"""Soccer against a slow oracle written from its rules, its two bodies, and what the arena promises."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from soccer_oracle import alike, busy_games, drawn_commands, slow, turned

from evorl.mdp.conformance import check
from evorl.mdp.core import Array, Box, MultiDiscrete
from evorl.mdp.decision_arrays import rule_actions
from evorl.mdp.soccer import Soccer, parameters
from evorl.mdp.soccer.arena import Body, SoccerArena
from evorl.mdp.soccer.parameters import Field, Restart, Rewards, Rules, Tackle, Team
from evorl.mdp.soccer.rule_player import SKILLS, RulePlayers
from evorl.mdp.soccer.rules import (
    KICK_OFF,
    Commands,
    Games,
    advance,
    kick_off,
    kick_off_places,
    new_games,
)
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

NUMPY, TORCH = Body.of("cpu"), Body.of("cpu", torch=True)
GPU = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"))
TORCHES = [pytest.param(TORCH, id="cpu"), pytest.param(Body.of("cuda"), id="cuda", marks=GPU)]


# ------------------------------------------------------------------ rules, two bodies, two sides


@pytest.mark.parametrize("team_size", [1, 2, 5])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_step_is_that_of_the_oracle(team_size: int, seed: int) -> None:
    rules, count = Rules(team_size=team_size), 40
    games, commands = busy_games(rules, seed, count), drawn_commands(rules, seed, count)
    outcome = advance(rules, NUMPY.xp, games, commands)
    clear = 0
    for game in range(count):
        it = slow(rules, games, game)
        moves = [(float(x), float(y)) for x, y in commands.move[:, game].T]
        goal = it.step(moves, commands.kick[game].tolist(), commands.tackle[game].tolist())
        got = slow(rules, outcome.games, game)
        if not alike(it, got):  # float32 may decide otherwise at an edge; then float64 of the same rules must not
            exact = Games(*(x.astype(np.float64) if x.dtype == np.float32 else x for x in games))
            got = slow(rules, advance(rules, NUMPY.xp, exact, commands).games, game)
            assert alike(it, got), f"{it}\n{got}"
            continue
        clear += 1
        assert goal == outcome.goal[game]
    assert clear >= count - 2


def played(body: Body, games: Games, commands: Commands, rules: Rules) -> Games:
    outcome = advance(rules, body.xp, body.games(games), Commands(*map(body.array, commands)))
    return Games(*map(body.numpy, outcome.games))


@pytest.mark.parametrize("body", TORCHES)
@pytest.mark.parametrize("seed", range(3))
def test_both_bodies_play_alike(seed: int, body: Body) -> None:
    """Within 1e-4 in a step; docs/worlds.md says how often a step is farther off."""
    rules, count = Rules(team_size=3), 300
    games, commands = busy_games(rules, seed, count), drawn_commands(rules, seed, count)
    one, two = played(NUMPY, games, commands, rules), played(body, games, commands, rules)
    assert all(alike(slow(rules, one, game), slow(rules, two, game), 1e-4) for game in range(count))


def arenas(body: Body, **keys: Any) -> tuple[SoccerArena, SoccerArena]:
    world = Soccer(seconds=4, **keys)
    slots, episodes = 3 * world.sides, Episodes(3)
    return SoccerArena(world, slots, episodes), SoccerArena(world, slots, episodes, body)


@pytest.mark.slow_cases("keys1-cpu", "keys2-cpu")
@pytest.mark.parametrize("body", TORCHES)
@pytest.mark.parametrize(
    "keys",
    [
        {}, {"control": "player", "team_size": 3}, {"opponent": "self", "continuous": True},
        {"left": Team(speed=0.8, kick=1.2), "reward": Rewards(goal=1, possession=0.1, progress=0.5, approach=0.5)},
    ],
)  # fmt: skip
def test_an_arena_of_torch_shows_what_one_of_numpy_shows(keys: dict[str, Any], body: Body) -> None:
    for arena, other in zip(*[[one] for one in arenas(body, **keys)], strict=True):
        for step in range(45):  # beyond the end of an episode
            now, then = arena.recv(), other.recv()
            assert now.inputs[0].dtype == then.inputs[0].dtype == np.float32
            assert np.allclose(now.inputs[0], then.inputs[0], atol=2e-3), step
            assert (now.terminated == then.terminated).all() and np.allclose(now.reward, then.reward, atol=1e-4)
            actions = random_actions(arena, step)
            arena.send(now.slots, actions)
            other.send(then.slots, actions)


def random_actions(arena: SoccerArena, step: int) -> Array:
    draw, action = np.random.default_rng(step), arena.spec.action
    if isinstance(action, MultiDiscrete):
        return np.stack([draw.integers(0, size, arena.slots) for size in action.nvec], 1)
    assert isinstance(action, Box)
    return draw.uniform(-1, 1, (arena.slots, len(action.low))).astype(np.float32)


def test_both_sides_of_a_game_turned_round_see_the_same_numbers() -> None:
    n, count = 3, 60
    arena = Soccer(team_size=n, opponent="self").arena(2 * count, Episodes(0))
    assert isinstance(arena, SoccerArena)
    games = busy_games(Rules(team_size=n), 5, count)
    for view in (arena._view.of_captains, arena._view.of_players):
        seen, mirrored = view(games), view(turned(games))
        half = seen.shape[1] // 2
        assert np.allclose(seen[:, :half], mirrored[:, half:], atol=1e-6)
        assert np.allclose(seen[:, half:], mirrored[:, :half], atol=1e-6)


# ------------------------------------------------------------------ the arena


@pytest.mark.slow_cases(but=("keys3",))
@pytest.mark.parametrize(
    "keys",
    [
        {}, {"opponent": "self"}, {"control": "player"}, {"control": "player", "opponent": "self", "team_size": 3},
        {"continuous": True, "team_size": 1}, {"team_size": 11, "goals": 2},
        {"reward": Rewards(goal=1, possession=0.1, progress=0.5, approach=0.5)},
        pytest.param({"device": "cuda"}, marks=GPU),
    ],
)  # fmt: skip
def test_it_follows_the_interface(keys: dict[str, Any]) -> None:
    world = Soccer(seconds=5, **keys)
    check(world, slots=2 * world.sides, decisions=60)


@pytest.mark.parametrize("control", ["team", "player"])
def test_numbers_are_what_they_are_called(control: Any) -> None:
    """Looked up by name, they are the state of the game as that side sees it."""
    world = Soccer(team_size=3, opponent="self", control=control)
    arena = SoccerArena(world, 2 * world.sides, Episodes(0))
    arena.games = games = busy_games(world, 7, 2)
    rows = arena._seen().reshape(2, 2, world.team_sides, -1)
    names = world.feature_names["game"]
    half, speed, n = world.field.length / 2, world.body.speed, world.team_size
    for game, team, member in np.ndindex(2, 2, world.team_sides):
        told = dict(zip(names, rows[game, team, member].tolist(), strict=True))
        sign, me, foe = 1 - 2 * team, team * n + member, (1 - team) * n + 1  # the second opponent
        at, moves, ball = sign * games.at[:, game] / half, sign * games.velocity[:, game] / speed, games.ball[:, game]
        ours = ("player 1 place", "player 1 velocity") if control == "team" else ("own place", "own velocity")
        theirs = "opponent 2 place" if control == "team" else "opponent 2 way"
        expected = {
            "ball": sign * ball / half, "ball velocity": sign * games.ball_velocity[:, game] / speed,
            ours[0]: at[:, me], ours[1]: moves[:, me], "opponent 2 velocity": moves[:, foe],
            theirs: at[:, foe] if control == "team" else at[:, foe] - at[:, me],
        }  # fmt: skip
        if control == "player":
            mate = team * n + (1 if member == 0 else 0)
            expected |= {"way to ball": sign * ball / half - at[:, me], "mate 1 way": at[:, mate] - at[:, me]}
        for name, (x, y) in expected.items():
            assert (told[f"{name} x"], told[f"{name} y"]) == pytest.approx((x, y), abs=1e-5), name
        assert told[("play", "kick-off", "throw-in", "goal kick", "corner")[int(games.mode[game])]] == 1
        assert told["own touch"] == (games.touched[game] == team)
        assert told["time left"] == pytest.approx(1 - games.time[game] / world.steps)


def test_unlike_teams_run_and_kick_by_their_own_factors() -> None:
    like, unlike = Soccer(opponent="self"), Soccer(opponent="self", left=Team(speed=0.5), right=Team(kick=0.25))
    a, b = (SoccerArena(world, 8, Episodes(1)) for world in (like, unlike))
    actions = random_actions(a, 0).reshape(4, 2, -1)
    ours, theirs = a._commands(actions), b._commands(actions)
    assert np.allclose(theirs.move[:, :, :2], 0.5 * ours.move[:, :, :2]) and np.any(ours.move)
    assert np.allclose(theirs.move[:, :, 2:], ours.move[:, :, 2:]) and np.any(ours.kick[:, 2:])
    assert np.allclose(theirs.kick[:, 2:], 0.25 * ours.kick[:, 2:]) and np.allclose(
        theirs.kick[:, :2], ours.kick[:, :2]
    )
    assert (theirs.tackle == ours.tackle).all()


def test_a_captain_may_see_its_team() -> None:
    for world in (Soccer(opponent="self", see_side=True), Soccer(see_side=True)):
        arena = SoccerArena(world, 4, Episodes(0))
        team = np.array([0, 1, 0, 1]) if world.opponent == "self" else arena.team
        shown = arena.recv().inputs[0]
        assert shown.shape[1:] == world.spec.inputs[0].shape and (shown[:, -1] == 2 * team - 1).all()


def test_an_episode_is_the_same_wherever_it_is_played() -> None:
    """Its numbers do not depend on the number of games beside it."""
    world = Soccer(seconds=5, opponent="strong")
    few, many = world.arena(1, Episodes(4)), world.arena(9, Episodes(4))
    for step in range(120):
        a, b = few.recv(), many.recv()
        assert a.inputs[0][0].tobytes() == b.inputs[0][0].tobytes(), step
        actions = np.random.default_rng(step).integers(0, 4, (9, 4))
        few.send(a.slots, actions[:1])
        many.send(b.slots, actions)


@pytest.mark.parametrize("continuous", [False, True])
def test_a_team_is_left_to_the_rule_players_by_their_action(continuous: bool) -> None:
    """Game by game as if the world played it."""
    one = Soccer(side="left", seconds=5, continuous=continuous).arena(3, Episodes(2))
    both = Soccer(opponent="self", seconds=5, continuous=continuous).arena(6, Episodes(2))
    assert isinstance(one, SoccerArena)
    pairs = np.repeat(rule_actions(one.spec, 3), 2, 0)
    for step in range(70):
        a, b = one.recv(), both.recv()
        assert a.inputs[0].tobytes() == b.inputs[0][::2].tobytes(), step
        pairs[::2] = random_actions(one, step)
        one.send(a.slots, pairs[::2])
        both.send(b.slots, pairs)


def nearer(arena: SoccerArena) -> np.ndarray:
    """By how many metres the team of each slot is nearer to the ball with its nearest player, [B]."""
    rows = []
    for game in range(arena.count):
        far = [math.dist(arena.games.at[:, game, player], arena.games.ball[:, game]) for player in range(4)]
        rows += [min(far[2:]) - min(far[:2]), min(far[:2]) - min(far[2:])]
    return np.array(rows)


def test_the_potentials_of_a_game_add_up_to_a_constant() -> None:
    """The sum of an episode without discount is minus the first potential: for progress 0, as it is at a kick-off."""
    world = Soccer(seconds=6, opponent="self", reward=Rewards(goal=1, possession=1, progress=1, approach=1, gamma=1))
    arena = world.arena(8, Episodes(1))
    assert isinstance(arena, SoccerArena)
    total = np.zeros((8, 4))
    first = nearer(arena)
    for step in range(world.steps):
        arena.send(arena.recv().slots, random_actions(arena, step))
        total += arena.recv().reward
    assert arena.recv().terminated.all()
    assert np.allclose(total[0::2], -total[1::2], atol=1e-5)
    assert np.allclose(total[:, 2], 0, atol=1e-5) and np.abs(total[:, 1]).max() > 0.5
    assert np.allclose(total[:, 3], -first / 20, atol=1e-5) and np.abs(first).min() > 1


def way_made(arena: SoccerArena) -> np.ndarray:
    """By how many metres the ball is nearer to the other goal than to the own one of the team of each slot, [B]."""
    rows = []
    for game in range(arena.count):
        left, right = (math.dist(arena.games.ball[:, game], (x * arena.world.field.length, 0)) for x in (-0.5, 0.5))
        rows += [left - right, right - left]
    return np.array(rows)


def test_every_step_earns_what_it_changes() -> None:
    """Also at a goal, after which the other team kicks off, and at a new episode."""
    field, reward = Field(length=10, width=8, goal=7), Rewards(progress=2, approach=0.5, gamma=0.9)
    arena = Soccer(seconds=12, field=field, opponent="self", reward=reward).arena(8, Episodes(1))
    assert isinstance(arena, SoccerArena)
    arena.recv()
    goals = ends = 0
    for step in range(250):
        before = np.stack([2 * way_made(arena) / 10, 0.5 * nearer(arena) / 5], 1)
        arena.send(np.arange(8), random_actions(arena, step))
        now = arena.recv()
        after = np.stack([2 * way_made(arena) / 10, 0.5 * nearer(arena) / 5], 1)
        after[now.terminated] = 0
        assert np.allclose(now.reward[:, 1:], 0.9 * after - before, atol=1e-5), step
        goals, ends = goals + (now.reward[:, 0] > 0).sum(), ends + now.terminated.sum()
    assert goals > 4 and ends == 16


def test_a_goal_counts_and_the_other_team_kicks_off() -> None:
    rules = Rules(team_size=2)
    games = new_games(rules, np.arange(1, 3).astype(np.uint64))
    games = games._replace(
        ball=np.array([[19.5, -19.5], [0.5, -0.5]], np.float32), mode=np.zeros(2, np.int64),
        ball_velocity=np.array([[20.0, -20.0], [0.0, 0.0]], np.float32),
    )  # fmt: skip
    still = Commands(np.zeros((2, 2, 4), np.float32), np.zeros((2, 4), np.float32), np.zeros((2, 4), np.bool_))
    outcome = advance(rules, NUMPY.xp, games, still)
    assert outcome.goal.tolist() == [1, -1] and outcome.games.score.tolist() == [[1, 0], [0, 1]]
    team = (outcome.goal > 0).astype(np.int64)
    places = kick_off_places(rules, np.arange(1, 3).astype(np.uint64), np.array([1, 1]), team)
    games = kick_off(rules, NUMPY.xp, outcome.games, outcome.goal, places)
    assert games.team.tolist() == [1, 0] and (games.mode == KICK_OFF).all() and not games.ball.any()
    near = np.hypot(*games.at) < rules.body.reach
    assert near.tolist() == [[False, False, False, True], [False, True, False, False]]
    assert (games.at[0, :, :2] <= 0).all() and (games.at[0, :, 2:] >= 0).all()  # each team in its own half


def test_stronger_rule_players_win() -> None:
    results = {}
    for left, right in (("middle", "weak"), ("strong", "middle")):
        results[left] = share_of_points(left, right)
    assert results["middle"] > 0.7 and results["strong"] > 0.65


def share_of_points(left: Any, right: Any, games: int = 48) -> float:
    rules, turn = Rules(team_size=2, seconds=30), np.array([1.0, 1.0, -1.0, -1.0], np.float32)
    one, two = (RulePlayers(rules, NUMPY.xp, turn, strength) for strength in (left, right))
    keys = np.random.default_rng(0).integers(0, 2**63, games).astype(np.uint64)
    state = new_games(rules, keys)
    for _ in range(rules.steps):
        ours = one.commands(state, one.errors(keys, state.time))
        theirs = two.commands(state, two.errors(keys, state.time))
        both = Commands(*(np.where(turn > 0, a, b) for a, b in zip(ours, theirs, strict=True)))
        state, goal, _, _ = advance(rules, NUMPY.xp, state, both)
        places = kick_off_places(rules, keys, state.score.sum(0), (goal > 0).astype(np.int64))
        state = kick_off(rules, NUMPY.xp, state, goal, places)
    lead = state.score[0] - state.score[1]
    return float(((lead > 0) + 0.5 * (lead == 0)).mean())


def test_pictures_show_both_teams() -> None:
    world = Soccer(team_size=11)
    image = world.arena(1, Episodes(0)).render()
    assert image is not None and image.dtype == np.uint8 and image.shape[2] == 3 and image.shape[1] == 640
    for colour in ((64, 110, 222), (226, 86, 70)):
        assert (np.abs(image.astype(int) - colour).sum(2) < 12).sum() > 200


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRequest, match="opponent=self reads it"):
        Soccer(opponent="strong", rule="weak")
    with pytest.raises(BadRequest, match="contradicts opponent=self"):
        Soccer(opponent="self", side="left")
    with pytest.raises(BadRequest, match="a multiple of that, such as 4"):
        Soccer(opponent="self").arena(3, Episodes(0))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadRequest, match=r"^device: .*no GPU"):
        replace(Soccer(), device="cuda").ready()


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"dt": 1e-300}, "seconds: 60 is more than 2^31 steps of dt=1e-300 seconds"),
        ({"dt": 1e-310, "seconds": 1e300}, "seconds: "),  # their quotient is infinite
        ({"restart": Restart(time=1e30)}, "restart.time: 1e+30 is more than"),
        ({"tackle": Tackle(time=1e300)}, "tackle.time: "),
        ({"tackle": Tackle(recovery=1e300)}, "tackle.recovery: "),
        ({"field": Field(goal=30.0)}, "field.goal: 30 is wider than the field, width=26"),
        ({"body": parameters.Body(radius=5.0)}, "body.reach: 1 is within the player, whom the ball touches at 5.15: "),
        ({"tackle": Tackle(reach=0.5)}, "tackle.reach: 0.5 is within the player, whom the ball touches at 0.55"),
        ({"restart": Restart(distance=50.0)}, "restart.distance: 50 keeps a team off the field: at most half of "),
    ],
)
def test_sizes_of_no_game_are_refused(keys: dict[str, Any], line: str) -> None:
    with pytest.raises(BadRequest) as error:
        Soccer(**keys)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize("body", [pytest.param(NUMPY, id="numpy"), *TORCHES])
def test_the_longest_times_are_counted(body: Body) -> None:
    most = 2.0**31
    long = Tackle(time=most, recovery=most)
    rules = Rules(dt=1.0, seconds=most, tackle=long, restart=Restart(time=most), field=Field(goal=26.0))
    games = new_games(rules, np.arange(1, 3).astype(np.uint64))
    tackles = Commands(np.zeros((2, 2, 4), np.float32), np.zeros((2, 4), np.float32), np.ones((2, 4), np.bool_))
    games = played(body, games, tackles, rules)
    assert rules.steps == 2**31 and (games.left == 2**31 - 1).all()
    assert (games.tackling == 2**31 - 1).all() and (games.recovery == 2**32 - 1).all()


@pytest.mark.parametrize(
    ("world", "strength"),
    [
        (Soccer(opponent="strong"), "strong"),
        (Soccer(opponent="self", rule="weak"), "weak"),
        (Soccer(opponent="self"), "middle"),
    ],
)
def test_the_rule_players_of_a_world_have_one_strength_wherever_they_play(world: Soccer, strength: str) -> None:
    for form in (world.all_sides(), world.all_sides().one_side(1), world.one_side(0), world.evaluation_world()):
        arena = form.arena(form.sides, Episodes(0))
        assert arena._rule.skill is SKILLS[strength]
    assert world.one_side(0).opponent == world.evaluation_world().opponent == strength
