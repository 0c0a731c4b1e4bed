"""Games that speak the protocol of Godot RL Agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from remote_games import EPISODES, Records

from evorl.mdp.core import Box, Discrete, Input, MultiDiscrete, StepsTogether
from evorl.mdp.forms import Mismatch
from evorl.mdp.remote import Remote
from evorl.mdp.remote.godot_rl.arena import GAMES, GodotRLArena
from evorl.mdp.remote.godot_rl.game import Game
from evorl.mdp.remote.messages import Cut, Unplayable
from evorl.util.errors import BadRequest

GAME = f"{sys.executable} {Path(__file__).parent}/godot_rl_game.py --port={{port}} --env_seed={{seed}}"


@contextmanager
def opened(*words: str, slots: int = 6, deadline_s: float = 20.0) -> Iterator[GodotRLArena]:
    with closing(Remote(protocol="godot_rl", command=" ".join([GAME, *words]), deadline_s=deadline_s)) as world:
        arena: Any = world.arena(slots, EPISODES)
        with closing(arena):
            yield arena


def test_agents_are_slots_that_step_together() -> None:
    with opened(slots=5) as arena:  # two games of three agents, one of which nobody needs
        assert arena.spec.inputs == (Input("obs", (2,)), Input("camera_2d", (3, 2, 4), "uint8"), Input("kind", (2,)))
        assert arena.spec.action == MultiDiscrete((3, 2))
        assert isinstance(arena, StepsTogether)
        now = arena.recv()
        assert now.inputs[1][0].tolist() == np.arange(24).reshape(2, 4, 3).transpose(2, 0, 1).tolist()
        goal = now.inputs[0][:, 1].copy()
        assert now.inputs[2].argmax(1).tolist() == (goal > 0).tolist()
        for step in range(8):
            assert not now.terminated.any() or step == 8
            arena.send(now.slots, np.tile([2, 0], (5, 1)))
            now = arena.recv()
            place = 0.1 * (step + 1)
            assert np.allclose(now.reward[:, 0], -np.abs(goal - place), atol=1e-6)
            assert now.cost == 5
        assert now.terminated.all() and not now.truncated.any()
        assert [slot for slot, _ in now.results] == [0, 1, 2, 3, 4]
        for slot, result in now.results:
            total = sum(-abs(float(goal[slot]) - 0.1 * (step + 1)) for step in range(8))
            assert result == pytest.approx({"fitness": total, "return": total, "length": 8.0}, abs=1e-5)


def test_real_actions_and_an_older_plugin() -> None:
    with opened("continuous") as arena:
        assert arena.spec.action == Box((-1.0,), (1.0,))
        Records(arena).play(10)
    with opened("old") as arena:
        assert arena.spec.action == MultiDiscrete((3, 2)) and arena.spec.action != Discrete(3)


@pytest.mark.slow_cases(but=("freeze", "garbage", "exit", "vast reward"))
@pytest.mark.parametrize(
    "fault", ["exit", "freeze", "nan", "vast reward", "short", "garbage", "picture", "choice", "half"]
)
def test_a_game_that_fails_is_replaced(fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(f"'{fault}'", f"{tmp_path}/mark", deadline_s=1.0) as arena:
        records = Records(arena).play(40)
    assert records.failed == 3
    assert "its 3 agents begin anew in another" in caplog.text


def test_a_start_that_fails_counts_as_a_failure_of_the_game(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The game that comes after it has a number, and so a seed, of its own."""
    monkeypatch.setattr("evorl.mdp.restarts.PAUSES_S", (0.0,) * 5)
    with opened("'no display'", f"{tmp_path}/mark", slots=3) as arena:
        records = Records(arena).play(40)
        assert arena._playing[0].name.startswith("game 3 ")
    assert records.failed == 3 and "the display is busy: its 3 agents begin anew in another" in caplog.text


def test_games_that_fail_one_after_the_other_are_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that has just crashed may not start again at once."""
    waited, left, reset = list[float](), [True, True], Game.reset

    def failing(self: Game, deadline_s: float) -> Any:
        if left:
            left.pop()
            raise Cut("the engine has crashed")
        return reset(self, deadline_s)

    monkeypatch.setattr("evorl.mdp.remote.godot_rl.arena.pause", waited.append)
    monkeypatch.setattr(Game, "reset", failing)
    with opened(slots=3) as arena:
        Records(arena).play(3)
    assert waited == [0.0, 5.0]


def test_a_game_that_fails_again_and_again_ends_the_run() -> None:
    game = [sys.executable, "-c", "import sys; sys.exit('no licence')"]
    world = Remote(protocol="godot_rl", command=f'{game[0]} -c "{game[2]}"')
    with closing(world), pytest.raises(Unplayable, match="ended with exit code 1; it said last: no licence"):
        world.arena(3, EPISODES)


@pytest.mark.slow_cases(but=("other order",))
@pytest.mark.parametrize("fault", ["one licence", "other agents", "other order"])
def test_an_arena_that_cannot_begin_leaves_no_games(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A game in another form would be given the observations, or actions, of others."""
    ended, close = set[str](), Game.close

    def noted(self: Game) -> None:
        ended.add(self.name)
        close(self)

    monkeypatch.setattr(Game, "close", noted)
    why = "the licence is in use" if fault == "one licence" else "has other agents, observations or actions than the"
    world = Remote(protocol="godot_rl", command=f"{GAME} '{fault}' {tmp_path}/mark")
    with closing(world), pytest.raises(Unplayable, match=rf"^game 2 \(process \d+\) .*{why}"):
        try:
            world.arena(6, EPISODES)
        finally:
            assert {name.partition(" (")[0] for name in ended} == {"game 1", "game 2"}
            assert GAMES[world._settings]._alive == 0


def test_an_arena_that_is_stopped_as_it_begins_leaves_no_games(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: Game, deadline_s: float) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Game, "reset", stopped)
    with closing(Remote(protocol="godot_rl", command=GAME)) as world:
        with pytest.raises(KeyboardInterrupt):
            world.arena(6, EPISODES)
        assert GAMES[world._settings]._alive == 0


def test_episodes_without_an_end_are_cut_where_evaluations_ask_for_it() -> None:
    """The game goes on meanwhile, and the next episode begins where it is."""
    with opened("endless", slots=5) as arena:
        arena.step_limit = 3
        now = arena.recv()
        for step in range(1, 7):
            arena.send(now.slots, np.tile([2, 0], (5, 1)))
            now = arena.recv()
            assert not now.terminated.any() and now.truncated.all() == (step % 3 == 0) == now.truncated.any()
            assert [result["length"] for _, result in now.results] == ([3.0] * 5 if step % 3 == 0 else [])
            if step % 3 == 0:
                assert (now.final[0] == now.inputs[0]).all() and np.allclose(now.final[0][:, 0], 0.1 * step)
    assert arena.cut == tuple((slot, episode) for episode in (0, 1) for slot in range(5))


def test_a_declared_time_limit_is_held() -> None:
    world = Remote(protocol="godot_rl", command=f"{GAME} endless", time_limit=4)
    with (
        closing(world),
        closing(world.arena(3, EPISODES)) as arena,
        pytest.raises(Mismatch, match="goes on after 4 decisions, and"),
    ):
        Records(arena).play(9)


@pytest.mark.slow_cases(but=("",))
@pytest.mark.parametrize("fault", ["", "freeze"])
def test_a_game_that_acts_when_its_arena_is_closed_can_be_used_again(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next arena does not take the outcome for the answer to its reset; a game without an outcome is ended."""
    words = [GAME, *([fault, f"{tmp_path}/mark"] if fault else [])]
    with closing(Remote(protocol="godot_rl", command=" ".join(words), deadline_s=1.0 if fault else 20.0)) as world:
        arena = world.arena(3, EPISODES)
        for _ in range(20):
            now = arena.recv()
            arena.send(now.slots, np.tile([2, 0], (3, 1)))
        arena.close()
        with closing(world.arena(3, EPISODES)) as arena:
            assert Records(arena).play(5).failed == 0
    assert "begin anew" not in caplog.text and (tmp_path / "mark").exists() == bool(fault)


def test_numbers_that_float32_cannot_tell_apart_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with opened("stamped") as arena:
        Records(arena).play(30)
    assert "the game: the input 'obs' has numbers that float32, in which policies compute, cannot" in caplog.text


def test_the_world_says_whether_evaluations_must_cut_its_episodes() -> None:
    assert not Remote(protocol="godot_rl", command=GAME).limited
    assert Remote(protocol="godot_rl", command=GAME, time_limit=8).limited


def test_a_saved_arena_goes_on_with_new_episodes() -> None:
    with opened() as arena:
        Records(arena).play(5)
        state, seen = arena.state_dict(), [x.copy() for x in arena.recv().inputs]
    with opened() as arena:
        arena.load_state_dict(state)
        records = Records(arena)
        records.recv()
        assert all((a == b).all() for a, b in zip(records.now.inputs, seen, strict=True))
        records.play(5)
        assert records.failed == arena.slots
    with opened(slots=3) as arena, pytest.raises(ValueError, match="the state is of 6 slots, the arena has 3"):
        arena.load_state_dict(state)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("mixed", "the game's agents have no actions, or choices beside real numbers"),
        ("policies", r"the game's agents have several policies \(a, b, b\)"),
        ("nobody", "the game has 0 agents in training mode"),
        ("vast", r"the game's agents observe 3,600,000,026 numbers; 16,777,216 may be"),
        ("escape", r"the game gives the name '\\x1b\[31mobs', which has signs that cannot be printed"),
    ],
)
def test_a_game_that_cannot_be_used_is_one_line(fault: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message), opened(fault):
        pass


@pytest.mark.parametrize("key", ["opponent", "evaluation"])
def test_it_has_no_opponents(key: str) -> None:
    keys: dict[str, Any] = {key: "game"}
    with pytest.raises(BadRequest, match=f"^{key}: games of Godot RL Agents have one side"):
        Remote(protocol="godot_rl", command=GAME, **keys)
