"""Football in the engine built from source: exact games, and processes that crash.

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
from evorl.mdp.football.engine import ACTIONS, BEGIN, RULE
from evorl.mdp.football.process import POOLS, GameProcess, Pool
from evorl.mdp.football.world import SCENARIOS
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, seed31

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


# ------------------------------------------------------------------ games


@pytest.mark.parametrize(
    "keys",
    [
        {"opponent": "self"},
        {"observation": "pictures", "side": "random"},
        pytest.param({"side": "right"}, marks=pytest.mark.slow),  # a random side is the right one in some games
    ],
    ids=str,
)
def test_it_conforms(stand_in: None, keys: dict[str, Any]) -> None:
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


@pytest.mark.slow_cases("rule")
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
        victims = idle(game)
        assert len(victims) == 2
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        assert played(game, 10)[0] == undisturbed
        assert not {*idle(game)} & {*victims}


def idle(game: Football) -> list[int]:
    return [process.pid for process in POOLS[game.scenario]._free]


def test_engines_that_are_killed_while_they_play_no_game_end_nothing(
    stand_in: None, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(world()) as game:
        played(game, 2, slots=4)
        victims = idle(game)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        rows, _ = played(game, 10, slots=1)
    assert len(victims) == 4 and not any(row[6] for row in rows[0])
    assert caplog.text.count("was killed by SIGKILL while it played none") == 4 and "again" not in caplog.text


@pytest.mark.slow  # as two tests above, both at once
def test_a_game_is_played_again_though_idle_engines_died_with_its_own(
    stand_in: None, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(world()) as game:
        undisturbed, _ = played(game, 10, slots=1)
        played(game, 2, slots=4)
        with closing(game.arena(1, Episodes(0))) as arena:
            assert isinstance(arena, BattleArena)
            rows = list[Row]()
            for number in range(11):
                told = arena.recv()
                rows.append(seen(told, 0))
                if number == 5:
                    battle: Any = arena._games[0].battle
                    for pid in (*idle(game), battle._process.pid):
                        os.kill(pid, signal.SIGKILL)
                arena.send(told.slots, np.array([[7 * len(rows) % len(ACTIONS)]]))
    assert rows == undisturbed[0] and "the game is played again" in caplog.text and "truncated" not in caplog.text


@pytest.mark.slow  # another moment of the test above
def test_an_engine_that_is_killed_as_its_next_game_begins_is_replaced(
    stand_in: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs when it is taken from the pool."""
    take = Pool.take

    def taken(self: Pool) -> GameProcess:
        process = take(self)
        if process.pid in victims:
            os.kill(process.pid, signal.SIGKILL)
        return process

    with closing(world()) as game:
        undisturbed, _ = played(game, 10)
        victims = idle(game)
        monkeypatch.setattr(Pool, "take", taken)
        assert played(game, 10)[0] == undisturbed
    assert caplog.text.count("a new one begins the game") == len(victims) == 2 and "episode" not in caplog.text


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
