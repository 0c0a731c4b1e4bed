"""Football in the engine built from source: what sides see, processes that crash, and exact games.

Where that engine is not built, a stand-in plays (tests/mdp/stand_in), in which little of football is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evorl.mdp
from evorl.mdp.battle_arena import BattleArena
from evorl.mdp.core import Array, Decisions, WorldError
from evorl.mdp.football import Football
from evorl.mdp.football.engine import ACTIONS, BEGIN, RULE, turned
from evorl.mdp.football.frame import FEATURES, FRAME, PLAYERS, checkpoints, picture, seen_by, simple115
from evorl.mdp.football.process import POOLS, GameProcess
from evorl.mdp.football.world import SCENARIOS
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, generator, seed31

ROOT = Path(__file__).parents[2]
STAND_IN = str(Path(__file__).parent / "stand_in")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in in the place of the engine, for processes that start within the test."""
    for scenario in SCENARIOS:
        POOLS.close(scenario)
    monkeypatch.syspath_prepend(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", STAND_IN)
    yield
    for scenario in SCENARIOS:
        POOLS.close(scenario)


def world(**keys: Any) -> Football:
    return Football(**{"engine": "gfootball", "observation": "simple115", "time_limit": 12, **keys})


Row = tuple[Any, ...]


def played(
    game: Football, steps: int, slots: int = 2, state: Any = None, first: int = 0
) -> tuple[list[list[Row]], Any]:
    """What each slot sees from the beginning to after so many actions, which are functions of slot and step.

    Also returns the arena's state then. ``state``: one to go on from, after ``first`` actions.
    """
    with closing(game.arena(slots, Episodes(0))) as arena:
        if state is not None:
            arena.load_state_dict(state)
        rows: list[list[Row]] = [[] for _ in range(slots)]
        while min(map(len, rows)) <= steps:
            told = arena.recv()
            for slot in told.slots.tolist():
                rows[slot].append(seen(told, slot))
            go = np.array([slot for slot in told.slots.tolist() if len(rows[slot]) <= steps], np.int64)
            arena.send(go, np.array([[(7 * (first + len(rows[slot])) + slot) % len(ACTIONS)] for slot in go]))
        return rows, arena.state_dict()


def seen(told: Decisions, slot: int) -> Row:
    results = dict(told.results).get(slot)
    ends = bool(told.terminated[slot]), bool(told.truncated[slot])
    return slot, told.inputs[0][slot].tobytes(), told.reward[slot].tolist(), *ends, results, slot in told.failed


def some_frame(number: int) -> Array:
    draw = generator("frames", number)
    frame = np.zeros((), FRAME)
    frame["count"] = draw.integers(1, PLAYERS + 1, 2)
    for team, count in enumerate(frame["count"].tolist()):
        frame["places"][team, :count] = draw.uniform((-1.1, -0.6), (1.1, 0.6), (count, 2))
        frame["moves"][team, :count] = draw.normal(size=(count, 2))
        frame["active"][team] = draw.integers(-1, count)
    frame["ball"], frame["ball_move"] = draw.uniform(-1, 1, (2, 3))
    team = int(draw.integers(-1, 2))
    frame["owner"] = team, -1 if team < 0 else draw.integers(0, frame["count"][team])
    frame["score"], frame["mode"] = draw.integers(0, 3, 2), draw.integers(0, 7)
    return frame


# ------------------------------------------------------------------ what a side sees


@pytest.mark.parametrize("number", range(20))
def test_numbers_and_picture_are_those_of_their_definitions(number: int) -> None:
    frame = some_frame(number)
    numbers: list[float] = []
    for team in (0, 1):
        for part in ("places", "moves"):
            for player in range(PLAYERS):
                numbers += list(frame[part][team, player]) if player < frame["count"][team] else [-1.0, -1.0]
    numbers += [*frame["ball"], *frame["ball_move"]]
    numbers += {-1: [1, 0, 0], 0: [0, 1, 0], 1: [0, 0, 1]}[int(frame["owner"][0])]
    numbers += [float(frame["active"][0] == player) for player in range(PLAYERS)]
    numbers += [float(frame["mode"] == mode) for mode in range(7)]
    assert len(numbers) == len(FEATURES) == 115
    assert simple115(frame).tolist() == [float(x) for x in numbers] and simple115(frame).dtype == np.float32
    image = np.zeros((4, 72, 96), np.uint8)
    own, other = (frame["places"][team, : frame["count"][team]].tolist() for team in (0, 1))
    active = [own[frame["active"][0]]] if frame["active"][0] >= 0 else []
    for layer, points in enumerate((own, other, [frame["ball"][:2].tolist()], active)):
        for x, y in points:
            column = int((x - -1.0) / (1.0 - -1.0) * 96)
            row = int((y - -1 / 2.25) / (1 / 2.25 - -1 / 2.25) * 72)
            image[layer, max(0, min(71, row)), max(0, min(95, column))] = 255
    assert (picture(frame) == image).all()


@pytest.mark.parametrize("number", range(5))
def test_a_field_turned_twice_is_the_same(number: int) -> None:
    frame = some_frame(number)
    turn = seen_by(frame, 1)
    assert seen_by(turn, 1).tobytes() == frame.tobytes() and seen_by(frame, 0) is frame
    assert (turn["places"][0] == -frame["places"][1]).all() and turn["ball"][2] == frame["ball"][2]
    assert turn["score"].tolist() == frame["score"][::-1].tolist()
    where = {"left": "right", "top_left": "bottom_right", "top": "bottom", "top_right": "bottom_left"}
    where |= {b: a for a, b in where.items()}
    assert [ACTIONS[turned(n)] for n in range(len(ACTIONS))] == [where.get(name, name) for name in ACTIONS]
    assert turned(RULE) == RULE


def test_checkpoints_are_paid_once_on_the_way_and_the_rest_with_a_goal() -> None:
    frame = np.zeros((), FRAME)
    frame["count"], frame["active"], frame["owner"] = (2, 2), (1, -1), (0, 1)
    paid = 0
    for x, reward in ((-0.5, 0.0), (0.05, 0.1), (0.3, 0.3), (0.05, 0.0), (0.3, 0.0)):
        frame["ball"][0] = x
        told, paid = checkpoints(frame, False, paid)
        thresholds = [0.99 - 0.8 / 9 * k for k in range(10)]
        assert told == pytest.approx(reward) and paid >= sum(1 - x <= each for each in thresholds)
    assert checkpoints(frame, True, paid) == (pytest.approx(0.6), 10)
    for owner in ((1, 1), (0, 0), (-1, -1)):  # the other team's, another player's, nobody's
        frame["owner"] = owner
        assert checkpoints(frame, False, 0) == (0.0, 0)


# ------------------------------------------------------------------ games


def test_it_conforms(stand_in: None) -> None:
    for keys in ({"opponent": "self"}, {"observation": "pictures", "side": "random"}, {"side": "right"}):
        with closing(world(**keys)) as game:
            game.ready()
            evorl.mdp.check(game, slots=2 * game.sides, decisions=20)


def test_a_game_is_played_from_both_sides(stand_in: None) -> None:
    """The left player runs to the goal and shoots; the right one sees the field turned round."""
    right, shot = ACTIONS.index("right"), ACTIONS.index("shot")
    game = world(opponent="self", time_limit=50, rewards=("scoring", "checkpoints"))
    with closing(game), closing(game.arena(2, Episodes(1))) as arena:
        paid = np.zeros(2)
        for number in range(20):
            told = arena.recv()
            paid += told.reward[:, 1]
            left, other = told.inputs[0]
            if told.results:
                break
            assert (left[88:90] == -other[88:90]).all() and (left[:4] == -other[44:48]).all()
            action = right if number < 5 else shot
            arena.send(told.slots, np.full((2, 1), action))
        assert told.reward[:, 0].tolist() == [1, -1] and told.terminated.all() and not told.truncated.any()
        assert paid == pytest.approx([1, 0])
        results = dict(told.results)
        assert results[0]["win"] == 1 and results[1]["win"] == 0 and results[1]["goals_against"] == 1
        assert arena.render(0) is not None and arena.render(0).shape == (360, 480, 3)


def test_a_side_that_takes_the_rule_action_is_the_built_in_player(stand_in: None) -> None:
    with closing(world(opponent="self")) as both, closing(world(side="left")) as alone:
        games = [each.arena(each.sides, Episodes(2)) for each in (both, alone)]
        for _ in range(8):
            told = [arena.recv() for arena in games]
            assert (told[0].inputs[0][0] == told[1].inputs[0][0]).all()
            games[0].send(told[0].slots, np.array([[4], [RULE]]))
            games[1].send(told[1].slots, np.array([[4]]))
        for arena in games:
            arena.close()


@pytest.mark.parametrize("opponent", ["rule", "self"])
def test_a_saved_game_goes_on_bit_for_bit(stand_in: None, opponent: str) -> None:
    with closing(world(opponent=opponent)) as game:
        whole, _ = played(game, 40)
        first, state = played(game, 25)
        rest, _ = played(game, 15, state=state, first=25)
    for slot in range(2):
        assert first[slot] == whole[slot][:26]
        assert rest[slot][0][:2] == whole[slot][25][:2]  # what came of earlier actions is not told again
        assert rest[slot][1:] == whole[slot][26:]


def test_what_came_of_a_game_is_saved_while_the_next_one_begins(
    stand_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, ask, after = [False], GameProcess.ask, seed31(Episodes(0)(1, 1))

    async def held_up(self: GameProcess, *request: int) -> Array:
        while request[:2] == (BEGIN, after) and held[0]:  # what comes after the first game of slot 1
            await asyncio.sleep(0.01)
        return await ask(self, *request)

    def until(arena: Any, rows: dict[int, Row], game: int) -> Row:
        """The next row of a game; ``rows``: what came with those of the other one, and was not asked for yet."""
        while game not in rows:
            decisions = arena.recv()
            rows |= {slot: seen(decisions, slot) for slot in decisions.slots.tolist()}
        return rows.pop(game)

    monkeypatch.setattr(GameProcess, "ask", held_up)
    rows: dict[int, Row] = {}
    with closing(world(time_limit=3)) as game, closing(game.arena(2, Episodes(0))) as arena:
        assert isinstance(arena, BattleArena)
        until(arena, rows, 0), until(arena, rows, 1)
        for number in range(3):
            held[0] = number == 2  # after which game 1 is over
            arena.send(np.array([1]), np.array([[0]]))
            if not held[0]:
                until(arena, rows, 1)
        arena.send(np.array([0]), np.array([[0]]))
        until(arena, rows, 0)
        while not arena._games[1].ended:
            arena.send(np.array([0]), np.array([[RULE]]))
            until(arena, rows, 0)
        state, held[0] = arena.state_dict(), False
        row = until(arena, rows, 1)
        assert row[4] and row[5]["length"] == 3
        with closing(game.arena(2, Episodes(0))) as other:
            other.load_state_dict(state)
            assert until(other, {}, 1) == row


def test_a_crash_that_does_not_repeat_changes_nothing(
    stand_in: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(world()) as game:
        undisturbed, _ = played(game, 30)
    (tmp_path / "crashes").write_text("once")
    monkeypatch.setenv("STAND_IN_CRASH", f"7 {tmp_path / 'crashes'}")
    with closing(world()) as game:
        disturbed, _ = played(game, 30)
    assert disturbed == undisturbed and "SIGSEGV; the game is played again" in caplog.text


def test_a_crash_that_repeats_ends_one_game(
    stand_in: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "crashes").write_text("once\nagain")
    monkeypatch.setenv("STAND_IN_CRASH", f"7 {tmp_path / 'crashes'}")
    with closing(world()) as game:
        (rows,), _ = played(game, 30, slots=1)
    ended = [n for n, row in enumerate(rows) if row[3] or row[4]]
    assert ended[0] == 7 and rows[7][3:] == (False, True, rows[7][5], False) and rows[7][5]["length"] == 7
    assert len(ended) > 1 and not any(row[6] for row in rows) and "truncated" in caplog.text


def test_a_killed_engine_is_replaced(stand_in: None) -> None:
    with closing(world()) as game:
        undisturbed, _ = played(game, 10)
        victims = [process.pid for process in POOLS[game.scenario]._free]
        assert len(victims) == 2
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        assert played(game, 10)[0] == undisturbed
        assert not {process.pid for process in POOLS[game.scenario]._free} & {*victims}


def test_an_engine_is_not_late_while_evorl_stands_still(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """While evorl learns or evaluates, nobody reads what an engine has answered."""
    with closing(world()) as game, closing(game.arena(2, Episodes(0))) as arena:
        assert isinstance(arena, BattleArena)
        waiting = set[int]()
        while len(waiting) < 2:
            waiting.update(arena.recv().slots.tolist())
        battle: Any = arena._games[1].battle
        before = battle._process
        monkeypatch.setattr("evorl.mdp.football.process.DEADLINE_S", 2.0)
        os.kill(before.pid, signal.SIGSTOP)
        arena.send(np.array([0, 1]), np.array([[0], [0]]))
        assert arena.recv().slots.tolist() == [0]
        os.kill(before.pid, signal.SIGCONT)
        time.sleep(2.5)
        assert arena.recv().slots.tolist() == [1] and battle._process is before


def test_an_engine_that_cannot_start_is_told(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.restarts.PAUSES_S", (0.0, 0.0))
    told = pytest.raises(WorldError, match=r"No module named 'gfootball\.scenarios\.academy_corner'")
    with closing(world(scenario="academy_corner")) as game, closing(game.arena(1, Episodes(0))) as arena, told:
        arena.recv()


# ------------------------------------------------------------------ the engine itself


built = pytest.mark.skipif(find_spec("gfootball_engine") is None, reason="needs the engine from source: make football")


@built
@pytest.mark.slow
@pytest.mark.parametrize("game", ["academy_empty_goal_close 5 60", "5_vs_5 8 250", "11_vs_11_kaggle 3 120"])
def test_games_are_those_of_its_own_environment(game: str) -> None:
    """From both sides, whatever was played before: numbers, pictures, both rewards, and ends."""
    code = [sys.executable, str(Path(__file__).parent / "football_oracle.py"), *game.split()]
    done = subprocess.run(code, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@built
@pytest.mark.slow
def test_the_engine_conforms_and_goes_on_bit_for_bit() -> None:
    with closing(world(scenario="5_vs_5", opponent="self", time_limit=15)) as game:
        game.ready()
        evorl.mdp.check(game, slots=4, decisions=20)


@built
def test_the_scenarios_are_those_of_the_package() -> None:
    package = find_spec("gfootball")
    assert package is not None and package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0]) / "scenarios"
    assert {path.stem for path in folder.glob("[0-9a]*.py")} == {*SCENARIOS}


# ------------------------------------------------------------------ refusals


def test_what_an_engine_lacks_is_refused() -> None:
    for key, value in (("observation", "simple115"), ("rewards", ("checkpoints",)), ("side", "right")):
        with pytest.raises(BadRequest, match=r"mdp\.engine=gfootball has"):
            Football(**{key: value})
    with pytest.raises(BadRequest, match="have one side"):
        Football().all_sides()
    with pytest.raises(BadRequest, match="once each"):
        world(rewards=("scoring", "scoring"))
    with pytest.raises(BadRequest, match="plays both teams"):
        world(opponent="self", side="right")
    with pytest.raises(BadRequest, match="did you mean 5_vs_5"):
        world(scenario="5_v_5")


def test_a_missing_engine_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.football.world.find_spec", lambda name: None)
    with pytest.raises(BadRequest, match="make football"):
        world().ready()
